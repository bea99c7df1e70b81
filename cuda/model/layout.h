// layout.h: the memory that every engine shares. Python reads these structs from this text (kineticsim_env/runtime/layout.py),
// so a field is declared once: one field per line, plain C types. Shapes stand behind each field:
// M markets, L levels, K slots, F numbers of an observation (a row's length), I = kMarketInfos + K * kSlotInfos (and K * kKeepInfos
// where actions may keep quotes, or slots have ladders), T decisions in one launch, S = T * auctions, B warm-start snapshots, C scenarios,
// P and Q words of a market's added agents: parameters and memory; U and V of its slots' policies.
#pragma once

#ifdef __CUDACC_RTC__  // NVRTC brings no system headers
typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned char uint8_t;
#else
#include <cstddef>
#include <cstdint>
#endif

namespace ks {

constexpr int kMaxSlots = 32;         // one lane of a warp per slot
constexpr int kMaxOrdersPerSide = 8;  // levels of a ladder,
constexpr int kMaxOrders = 32;        // and of all slots' ladders together
constexpr int kMostUnderWay = 4;      // submissions of a market that have not arrived yet
constexpr int kHistory = 4;           // past decisions that an observation shows
constexpr int kDepth = 10;            // ticks per side that an observation shows
constexpr int kMarketFeatures = 30;   // 2 * kDepth book, spread, last price, kHistory returns, kHistory volumes
constexpr int kOwnFeatures = 7;       // the largest role's own part
constexpr int kObservation = 37;      // kMarketFeatures + kOwnFeatures, the row length of an observation,
constexpr int kQueueFeatures = 2;     // and so many more under continuous trading: what is ahead of the slot's bid and ask
constexpr int kLevelFeatures = 6;     // and so many for each level of the slot's ladder behind the first: columns behind these
constexpr int kExtras = 12;           // of enum Extra: columns behind all these, for environments that ask for them
constexpr int kActionSize = 4;        // the largest role's continuous action, of one level and without keep numbers
constexpr int kMakerChoices = 7;      // of a maker's discrete action, for each side: no order, or one of 6 offsets
constexpr int kDirectionalOffsetCount = 7;  // of the other roles' discrete actions
constexpr int kMaxPrice = 1 << 30;    // absolute, either way
constexpr int kMaxOrigin = 1 << 29;   // so that doubled absolute prices of the grid fit an int32
constexpr int kMaxQuoteQty = 1 << 20;
constexpr int kActionTolerance = 1000;  // an action may be 1 / this outside [-1, 1], as rounding leaves it: it is clamped
constexpr int kNoPrice = 2147483647;  // of a side of the book where nothing rests; bids have it with a minus
constexpr int kMarketInfos = 6;       // of enum MarketInfo,
constexpr int kSlotInfos = 9;         // of enum SlotInfo,
constexpr int kKeepInfos = 2;         // and of enum KeepInfo, where quotes of actions may be rejected
constexpr int kTaskValues = 11;       // of enum TaskValue
constexpr int kMostAgentClasses = 8;  // that users have written, of a market,
constexpr int kMostAgentQty = 65535;  // and units of an order of theirs

// The CUDA kernel's shared memory, which its launcher needs too, in ints.
constexpr int kMarketsPerBlock = 4;   // at most, one warp each
constexpr int kWarpLanes = 32;        // of a warp; a grid has at least as many ticks
constexpr int kBinInts = 128;         // of a market's order bins
constexpr int kTileMarketInts = 60;   // of an environment's market,
constexpr int kTileLeverInts = 16;    // with levers so many more,
constexpr int kTileSlotInts = 24;     // and of each of its slots
constexpr int kRowPadding = 4;        // of a lane's book, or equal ticks of all lanes would be in one bank
constexpr int kDeadlineCounts = 4;    // that come before the markets in lists of deadlines
constexpr int kNarrowOrders = 8191;   // all orders of an auction, for a lane to have numbers of 16 bits,
constexpr int kNarrowQuote = 8192;    // each side of its quote,
constexpr int kNarrowResting = 16383; // and what rests at a tick

// Bits of a market's sticky error word.
constexpr int kErrorOverflow = 1;     // a side's total quantity would reach 2^31: the market has stopped
constexpr int kErrorNanAction = 2;    // a NaN action: the old quote was kept
constexpr int kErrorActionRange = 4;  // an action further outside its space than the tolerance, or a record out of range: it was clamped
constexpr int kErrorOrigin = 8;       // the window left +/-2^29 ticks: the market has stopped

// What numbers of the structs below mean. Python has them by name: kMarkMid of enum Mark is "mid".
enum Tie { kTieLowest = 0, kTieMid = 1 };
enum Residue { kResidueRest = 0, kResidueCancel = 1 };
enum Rounding { kRoundingEven = 0, kRoundingCoin = 1 };
enum Reference { kReferenceMid = 0, kReferenceFundamental = 1 };
enum Arrivals { kArrivalsEach = 0, kArrivalsClock = 1, kArrivalsFlow = 2 };
enum Mechanism { kMechanismCall = 0, kMechanismContinuous = 1 };
enum Role { kRoleMaker = 0, kRoleMomentum = 1, kRoleNoise = 2, kRoleExecutor = 3, kRoleTrader = 4, kRoleFundamental = 5 };
enum ActionForm { kActionFormQuotes = 0, kActionFormOrder = 1, kActionFormTrade = 2 };  // action_form in tasks.h: of each role
// Columns of an observation behind all others, in this order, of which an environment has those it asks for. From kExtraHorizon
// on they are settings of the task that differ, in the order of enum TaskValue. A further one is a number here (and kExtras), a
// case of extra_ratio (model/tasks.h) and of EXTRAS (engines/numpy/observations.py), and its least value in EXTRAS (tasks/base.py).
enum Extra {
  kExtraFundamental = 0, kExtraDecisionEvents = 1, kExtraHorizon = 2, kExtraMaxQty = 3, kExtraInventoryLimit = 4,
  kExtraMaxTarget = 5, kExtraBlockQty = 6, kExtraInitialInventory = 7, kExtraInventoryPenalty = 8, kExtraIdlePenalty = 9,
  kExtraRiskAversion = 10, kExtraLeftoverPenalty = 11
};
enum ActionType { kActionTypeContinuous = 0, kActionTypeDiscrete = 1 };
enum Reward { kRewardPnl = 0, kRewardInventory = 1, kRewardAsymmetric = 2, kRewardPerUnit = 3, kRewardEdge = 4 };
enum ExecutionReward { kExecutionRewardShortfall = 0, kExecutionRewardRiskAverse = 1, kExecutionRewardTerminal = 2, kExecutionRewardEdge = 3 };
// What ends a decision: so many intervals; or before, an interval of one event in which a slot traded, or a best price moved.
enum Decide { kDecideInterval = 0, kDecideFill = 1, kDecideTouch = 2 };
enum Mark { kMarkFundamental = 0, kMarkMid = 1, kMarkLiquidation = 2 };
enum Autoreset { kAutoresetNextStep = 0, kAutoresetSameStep = 1, kAutoresetDisabled = 2 };
enum BankOwner { kBankOwnerAllMarkets = 0, kBankOwnerEachMarket = 1, kBankOwnerEachScenario = 2 };
enum Side { kSideRandom = 0, kSideBuy = 1, kSideSell = -1 };
// Of a side of a slot's quote, as it arrives; a bit each. And why nothing, or not all, of it came to rest.
enum OrderFlag { kOrderFlagKeep = 1, kOrderFlagPostOnly = 2, kOrderFlagImmediateOrCancel = 4, kOrderFlagMarket = 8 };
enum Reject { kRejectPostOnly = 1, kRejectOwnOrder = 2 };
// The last one opens the books of order flows, for a reset of the host.
enum LaunchMode {
  kLaunchModeRun = 0, kLaunchModeEnvStep = 1, kLaunchModeEnvReset = 2, kLaunchModeEnvRestart = 3, kLaunchModeOpen = 4
};
// Of a run, per auction: `series_...` of struct Launch. From kSeriesBestBid on they take time to record (model/auction.h).
enum Series {
  kSeriesLastPrice = 0, kSeriesVolume = 1, kSeriesMid2 = 2, kSeriesFundamental = 3, kSeriesBestBid = 4, kSeriesBestAsk = 5,
  kSeriesBidDepth = 6, kSeriesAskDepth = 7, kSeriesSignedVolume = 8
};
// Rows of Launch::info, of each market: prices in ticks, NaN of a side of the built-in book where nothing rests.
enum MarketInfo {
  kMarketInfoMid = 0, kMarketInfoFundamental = 1, kMarketInfoBestBid = 2, kMarketInfoBestAsk = 3, kMarketInfoScenario = 4,
  kMarketInfoElapsed = 5
};
// And of each slot: money in ticks x units but fees, as everywhere in thousandths of that; what it bought and sold in the
// decision; what it traded since its episode began (filled) and has left of a block or target (open, 0 without one).
enum SlotInfo {
  kSlotInfoCash = 0, kSlotInfoInventory = 1, kSlotInfoFees = 2, kSlotInfoBought = 3, kSlotInfoSold = 4, kSlotInfoFilled = 5,
  kSlotInfoOpen = 6, kSlotInfoValue = 7, kSlotInfoEpisodeReturn = 8
};

// Where actions may keep quotes, or slots have ladders, rows of each slot behind all these: bits of enum Reject of the last decision's
// bids and asks.
enum KeepInfo { kKeepInfoRejectedBid = 0, kKeepInfoRejectedAsk = 1 };

// Settings of the task that may differ from market to market, from slot to slot and from episode to episode: a row of
// Launch::task_values. The horizon is a market's, alike in all its slots; the inventory limit is only shown here, as pre-trade
// limits are MarketParams'; forced auctions follow from the largest block of the market, and from whether slots unwind.
enum TaskValue {
  kTaskValueHorizon = 0, kTaskValueMaxQty = 1, kTaskValueInventoryLimit = 2, kTaskValueMaxTarget = 3, kTaskValueBlockQty = 4,
  kTaskValueInitialInventory = 5, kTaskValueInventoryPenalty = 6, kTaskValueIdlePenalty = 7, kTaskValueRiskAversion = 8,
  kTaskValueLeftoverPenalty = 9, kTaskValueForcedAuctions = 10
};

// What no kernel reads that has neither levers, nor a clock, nor added agents: a warp leaves it out of its copy of a row
// (warp/tile_state.cuh). A new field takes the place of padding, so that rows in saved states stay what they are.
struct Levers {
  int32_t rounding;                // enum Rounding
  int32_t reference;               // enum Reference
  int32_t taker_offset;            // ticks
  int32_t taker_fee;               // thousandths of a tick per unit
  int32_t tax;                     // ticks per unit
  int32_t collar;                  // ticks, 0: off
  int32_t tick_size;               // grid ticks
  int32_t quote_latency;           // events; microseconds where intervals have a length
  int32_t regimes;                 // 0: none
  int32_t regime_threshold;        // of 2^16
  int32_t interval;                // events, 0 where every agent comes once
  int32_t beat;                    // events, likewise
  int32_t num_agents;              // indices of agents, inactive ones too
  int32_t interval_us;             // of an order flow, microseconds of an interval, which then has `interval` events at most; 0: it has so many
  int32_t flow;                    // which of the order flows the market has
  int32_t padding[1];              // 0; rows are read by 16 bytes
};

// One row of parameters. The counts are of active agents; a replaced agent is inactive, but keeps its index,
// so each class also has the index of its first agent (noise agents start at 0).
struct MarketParams {
  int32_t num_noise;
  int32_t num_momentum;
  int32_t num_maker;
  int32_t num_fundamental;
  int32_t first_momentum;
  int32_t first_maker;
  int32_t first_fundamental;
  int32_t init_price;
  int32_t init_depth;
  int32_t max_order_qty;
  int32_t noise_spread;
  int32_t market_order_threshold;  // of 2^24
  int32_t maker_half_spread;
  int32_t walk_threshold;          // of 2^16
  int32_t jump_threshold;          // of 2^16
  int32_t jump_size;
  int32_t cancel_threshold;        // of 2^16
  int32_t window;                  // 0: off
  int32_t tie;                     // enum Tie
  int32_t residue;                 // enum Residue
  int32_t fundamental_price;       // at the start of an episode, absolute
  int32_t max_quote_qty;
  int32_t inventory_limit;         // -1: none
  int32_t fee;                     // thousandths of a tick per unit; negative: a rebate
  Levers levers;                   // behind all others
};
static_assert(sizeof(Levers) == 4 * kTileLeverInts, "plan.h counts on it");
#ifndef __CUDACC_RTC__  // which has no offsetof
static_assert(offsetof(MarketParams, levers) + sizeof(Levers) == sizeof(MarketParams), "the levers are last");
#endif

// What a regime changes of a market's parameters; -1 leaves them as they are.
struct RegimeParams {
  int32_t max_order_qty;
  int32_t noise_spread;
  int32_t market_order_threshold;
  int32_t maker_half_spread;
  int32_t taker_offset;
  int32_t walk_threshold;
  int32_t jump_threshold;
  int32_t jump_size;
  int32_t cancel_threshold;
};

// A class of agents that a user has written (model/agents.h), alike in all markets but for its parameters.
struct AgentClass {
  int64_t functions;               // AgentFunctions of the C++ engine
  int32_t first;                   // its first agent, counted from the first that users have added
  int32_t agents;                  // inactive ones too
  int32_t active;                  // all but the last, which slots replace
  int32_t parameters;              // place of its first parameter in a row of agent_parameters
  int32_t parameter_stride;        // 1: each agent has its own
  int32_t memory;                  // place of its first word in a row of agent_memory
};

// What plays a slot in the place of its actions, a policy that a user has written (model/programs.h).
struct SlotPolicy {
  int64_t functions;               // PolicyFunctions of the C++ engine
  int32_t number;                  // 1 + its place among the policies of the launch; 0: the slot has actions
  int32_t parameters;              // place of its first parameter in a row of policy_parameters
  int32_t memory;                  // place of its first word in a row of policy_memory,
  int32_t words;                   // and how many
};

// The task's settings (kineticsim_env/tasks/ checks and fills them), alike for all markets; of one that differs, the largest.
struct TaskParams {
  int32_t horizon;                 // of an episode, in what `elapsed` counts: decisions, or events
  int32_t action_type;             // enum ActionType
  int32_t max_offset;              // ticks from the mid
  int32_t max_qty;                 // units per side
  int32_t reward;                  // maker, trader, momentum: enum Reward
  int32_t execution_reward;        // executor: enum ExecutionReward
  int32_t mark;                    // enum Mark
  int32_t autoreset;               // enum Autoreset
  int32_t stagger;                 // 1: the first episode starts at a hashed elapsed time
  int32_t max_target;              // units a noise learner has to trade at most
  int32_t block_side;              // of an executor: enum Side; random: drawn in each episode
  int32_t block_qty;               // units an executor has to trade
  int32_t forced_qty;              // units per auction in which the rest of a block is executed at the deadline
  int32_t forced_auctions;         // that this, or to unwind, may take at most; 0: there is nobody who does
  int32_t initial_inventory;       // units of a maker, trader or momentum learner; 0 where Launch::task_values is null
  int32_t bank_size;               // warm-start snapshots that a market can draw from; 0: cold opening book
  int32_t bank_owner;              // of bank_size rows each: enum BankOwner
  int32_t scenarios;               // rows of scenario_params, of which each episode draws one; 0: none
  int32_t extras;                  // columns behind all others of an observation: of each of enum Extra, a bit
  int32_t role[32];                // of each slot: enum Role
  int32_t keep;                    // 1: actions may keep standing quotes, under continuous trading
  int32_t decide;                  // enum Decide
  int32_t longest;                 // of a decision, in what `elapsed` counts: 1, or the most events
  int32_t learners;                // slots with whose episodes a market's ends, where policies play the others in the launch; 0: all
  int32_t unwinds;                 // slots, from the first on, of which those that trade for profit unwind at the horizon
  double inventory_penalty;
  double dampening;
  double idle_penalty;             // of a decision without a fill, where reward is per unit
  double risk_aversion;            // of an executor
  double reward_scale;
  double max_loss;                 // 0: no termination
  double leftover_penalty;         // ticks per unit that a noise learner or an executor leaves undone
  double value_scale[11];          // of each of enum TaskValue that has a column, what this is divided by
};

// What a rollout has beside: decisions whose actions a policy chooses within the launch (policy/), A numbers each, and what is recorded
// of them. Y slots of a market, from the first on, have the policy; W is the least multiple of 8 above the numbers that it sees, behind
// which rows have a 1; R = T / every, rounded up.
struct Rollout {
  const int32_t* networks;         // of each group of markets one: policy/network.cuh
  const int64_t* seed;             // [1] of the noise
  int32_t noise;                   // 0: means, or the likeliest choices
  int32_t slots;                   // Y
  int32_t stride;                  // F, numbers of a row of observations
  int32_t markets_per_network;     // a multiple of 32
  int32_t every;                   // decisions in which a market ends one episode at most; 0: final rows are not recorded
  int32_t padding;
  uint8_t* rows16;                 // [T, M, Y, 2 * W] in bfloat16, or null
  float* rows;                     // [T, M, Y, W] or null
  uint8_t* final_rows16;           // [R, M, Y, 2 * W] of truncated episodes the last, likewise
  float* final_rows;               // [R, M, Y, W]
  float* actions;                  // [T, M, Y, A] as drawn, not cut to their space; of a continuous policy
  int64_t* choices;                // [T, M, Y] of a discrete one
  int32_t* orders;                 // [T, M, Y, N, 4] of programs what they submitted, or under continuous trading, with flags, [.., 6]
  float* log_prob;                 // [T, M, Y]
  float* value;                    // [T, M, Y] or null
  float* reward;                   // [T, M, Y]
  uint8_t* terminated;             // [T, M, Y]
  uint8_t* truncated;              // [T, M, Y]
  uint8_t* played;                 // [T, M, Y] whether there was a decision; else a reset, or nothing
  int32_t* decision_events;        // [T, M] or null
};

// The argument of one launch. A pointer that is not needed is null. Of a ladder, with n above 1, N is n levels, and O is n levels with
// two places in queues each; with one order per side neither is an axis.
struct Launch {
  int64_t markets;
  int32_t levels;
  int32_t slots;
  int32_t orders_per_side;         // n, levels of each slot's ladder
  int32_t decisions;
  int32_t auctions;
  int32_t params_stride;           // rows from one market's parameters to the next: 0 or 1
  int32_t env_mode;                // enum LaunchMode
  int32_t tile;                    // markets that a warp of the CUDA kernel steps, at most 32 slots together
  int32_t growth;                  // the most that this launch can add to a side of any market, at most 2^31 - 1
  int32_t records;                 // 1: one of the series below is asked for, 2: one of the further ones, too
  int32_t action_stride;           // numbers in a row of actions
  int32_t arrivals;                // enum Arrivals
  int32_t mechanism;               // enum Mechanism
  int32_t reach;                   // ticks from a side's best price that its recorded depth counts
  MarketParams* params;            // [M] or [1]; [M] with scenarios
  const MarketParams* scenario_params; // [C] or null
  const int64_t* scenario_thresholds;  // [C] likewise, of 2^32, rising: scenario_of in tasks.h; the last is 0: all are as likely
  const RegimeParams* regimes;     // [R] or null
  // Classes of agents that users have written.
  int32_t agent_classes;           // how many
  int32_t added_agents;            // of all these classes; their indices follow those of built-in agents
  int32_t largest_added_order;     // units, of any of these classes
  int32_t agent_threshold;         // of 2^16, the share of an order flow's events at which such an agent comes
  int32_t agent_parameters_stride; // rows from one market's parameters to the next: 0 or 1
  int32_t parameter_words;         // P
  int32_t memory_words;            // Q
  AgentClass agents[8];
  int32_t* agent_parameters;       // [M, P] or [1, P]; [M, P] with scenarios
  const int32_t* scenario_agent_parameters; // [C, P] or null
  int32_t* agent_memory;           // [M, Q] or null
  // State of a market.
  int32_t* bid;                    // [M, L]
  int32_t* ask;                    // [M, L]
  int32_t* prev_mid2;              // [M]
  int32_t* last_tick;              // [M] last clearing price on the grid
  int32_t* price_origin;           // [M]
  int32_t* fundamental_price;      // [M]
  int64_t* seed;                   // [M]
  int64_t* episode;                // [M]
  int64_t* t;                      // [M]
  int64_t* volume;                 // [M]
  int64_t* trades;                 // [M]
  int32_t* error;                  // [M]
  // State of a market with regimes, or on the clock, else null.
  int32_t* regime;                 // [M]
  int32_t* ret;                    // [M] direction of the return at the last beat
  int32_t* beat_price;             // [M] absolute last price, for the collar: at the last beat; in a call, at the interval's beginning
  // State of a market of an order flow (model/flow.h), else null.
  const int64_t* flow_table;       // [Z] struct FlowNumbers of each
  int32_t* lives;                  // [M, 2, L] orders, fleeting and lasting ones
  int32_t* fleeting_units;         // [M, L]
  int64_t* flow;                   // [M, 9] struct FlowState
  // State of its slots.
  int32_t* quotes;                 // [M, K, O, 4] standing: bid price, bid quantity, ask price, ask quantity
  int64_t* cash;                   // [M, K]
  int64_t* inventory;              // [M, K]
  int64_t* fees;                   // [M, K] thousandths of a tick
  // State of slots under continuous trading, else null; bids first.
  int32_t* queue;                  // [M, K, O, 2] built-in units ahead of standing quotes
  int64_t* moments;                // [M, K, O, 2] when standing quotes came: 256 * t + place among the interval's arrivals
  // What is under way, of a market whose quotes may arrive in a later decision, else null.
  int64_t* due;                    // [M, 4] 1 + the event at which each submission arrives, oldest first; 0: none
  int32_t* due_quotes;             // [M, 4, K, N, 4] as new_quotes
  int32_t* due_flags;              // [M, 4, K, N] as order_flags
  // Input and output of a run; the first two of a step, too, in the place of actions.
  const int32_t* new_quotes;       // [T, M, K, N, 4] or null: standing quotes stay
  const int32_t* order_flags;      // [T, M, K, N] of these, enum OrderFlag: a bid's, and 2^8 times an ask's; or null: none
  int32_t* rejects;                // [T, M, K, N] enum Reject likewise, or null
  int64_t* fills;                  // [T, M, K, 2] bought, sold in each decision
  int64_t* value;                  // [T, M, K] 2 * cash + inventory * mid2 after each decision, fees apart
  int32_t* series_last_price;      // [M, S] absolute
  int32_t* series_volume;          // [M, S]
  int32_t* series_mid2;            // [M, S] of the built-in resting book after the auction, absolute
  int32_t* series_fundamental;     // [M, S]
  // Further ones (model/auction.h), of the built-in resting book after the auction.
  int32_t* series_best_bid;        // [M, S] absolute, -kNoPrice where there is none
  int32_t* series_best_ask;        // [M, S] absolute, kNoPrice where there is none
  int32_t* series_bid_depth;       // [M, S] units from the best bid to `reach` ticks below it
  int32_t* series_ask_depth;       // [M, S]
  int32_t* series_signed_volume;   // [M, S] of takers, buys less sells; in a call of marketable orders
  // State of an environment.
  int32_t* elapsed;                // [M] decisions since the episode began, or events where these end decisions
  uint8_t* done;                   // [M] the episode has ended and waits for its reset
  int32_t* mid_history;            // [M, 5] mid2 now and after the kHistory decisions before
  int32_t* volume_history;         // [M, 4] volume of the last kHistory decisions, newest first
  int64_t* prev_value;             // [M, K] marked value after the last decision, in 1/2000 tick
  uint8_t* ended;                  // [M, K] the slot's episode has ended, before its market's
  int32_t* arrival2;               // [M] mid2 when the episode began
  int32_t* scenario;               // [M] the row of scenario_params that the episode plays
  // Settings of the task where they differ (model/task_values.h), else null.
  double* task_values;             // [M, K, 11] enum TaskValue: those of the episode
  const double* scenario_values;   // [C, K, 11] those that each scenario draws, NaN for the others; or null
  int64_t* opening_value;          // [M, K] of the initial inventory as the episode began, marked, in 1/2000 tick
  // Input and output of an environment.
  const float* actions;            // [M, K, action_stride] continuous
  const int64_t* choices;          // [M, K] discrete
  const uint8_t* reset_mask;       // [M] or null: all
  const int32_t* reset_scenario;   // [M] or null: the scenarios of the episodes that a reset begins, -1 where they are drawn
  float* observation;              // [M, K, F]
  float* final_observation;        // [M, K, F] before any reset
  float* reward;                   // [M, K]
  uint8_t* terminated;             // [M, K]
  uint8_t* truncated;              // [M, K]
  uint8_t* over;                   // [M, K] terminated or truncated
  int32_t* decision_events;        // [M] events of the last decision, where these end decisions, else null
  // What is known after a decision, for those who ask: final infos and rewards of users' own; else null.
  double* info;                    // [I, M] MarketInfo, then SlotInfo of each slot, then KeepInfo: of the last decision, or as an episode began
  double* episode_return;          // [M, K] of the built-in reward; null where it is not paid: the row in `info` then stays
  int64_t* episode_filled;         // [M, K] units bought and sold
  uint8_t* idle;                   // [M, K] the slot took no part in the last step
  int32_t* flow_ticks;             // [M, L, 2] that of an order flow with a CUDA kernel, see events/lives.cuh; or null
  int32_t* deadline_lists;         // [kDeadlineCounts + 4 * M] the CUDA kernel's own, see lane/deadlines.cuh; or null
  // Warm starts.
  const int32_t* bank_bid;         // [B, L]
  const int32_t* bank_ask;         // [B, L]
  const int32_t* bank_scalars;     // [B, 4] prev_mid2, last_tick, price_origin, fundamental_price
  const int32_t* bank_regime;      // [B], or null where there are no regimes
  const int32_t* bank_memory;      // [B, Q], or null where no agent has memory
  const int32_t* bank_lives;       // [B, 2, L], and what follows, or null where there is no order flow
  const int32_t* bank_fleeting_units; // [B, L]
  const int64_t* bank_flow;        // [B, 9]
  TaskParams task;
  // Policies of slots that users have written; U and V words of a market's: parameters and memory.
  SlotPolicy slot_policies[32];
  int32_t policy_parameters_stride; // rows from one market's parameters to the next: 0 or 1
  int32_t policy_parameter_words;  // U
  int32_t policy_memory_words;     // V
  int32_t policy_padding;
  const int32_t* policy_parameters; // [M, U] or [1, U]
  int32_t* policy_memory;          // [M, V]
  int32_t* played_quotes;          // [M, K, N, 4] what slots with policies have submitted, or null,
  int32_t* played_flags;           // [M, K, N] and its flags
  Rollout rollout;
};

}  // namespace ks
