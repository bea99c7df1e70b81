// market_state.cuh: a market's numbers in the registers of a warp and its book in shared memory: loading and storing them,
// cancellation, the grid's move, and the market's own random words. Holds no rule.
#pragma once

#include "warp/added_agents.cuh"
#include "warp/order_flow.cuh"

namespace ks {

template <int kBins>
struct MarketState : OrderFlow<kBins>, MarketNumbers {
  using Flow = OrderFlow<kBins>;
  using Flow::buy, Flow::grid, Flow::lane, Flow::levels, Flow::own_row, Flow::p, Flow::sell;

  const Launch& launch;
  const int64_t m;

  int32_t best_bid, best_ask;    // of the resting built-in book; -1 and kNoTick where a side is empty
  int32_t room;                  // quantity that either side can take at least before it overflows
  bool roomy;                    // room for all that this launch can add
  uint64_t first_word;           // the counter of this lane's first word in this auction
  uint64_t words;                // see hash_market_words
  int32_t words_left;            // auctions that they still suffice for
  const uint64_t* prepared;      // see start_prepared; null from the second auction on
  int64_t volume;                // volume and trades are of this launch
  uint32_t trades;
  int32_t regime, prepared_coin; // with levers
  bool book_is_stored;           // the book in global memory is the valid one: an overflow spoilt the one in shared memory

  __device__ __forceinline__ MarketState(const Launch& launch, int64_t m, const MarketParams& row, int* book, int* bins)
      : Flow(launch, row, book, bins), launch(launch), m(m), volume(0), trades(0), regime(0), prepared_coin(0),
        book_is_stored(false) {
    error = 0;
  }

  __device__ __forceinline__ void start(uint64_t market_key, int64_t time) {
    key = market_key;
    t = time;
    first_word = word_counter(key, t, lane);
    words_left = 0;
    prepared = nullptr;
  }

  // The caller has hashed for the first auction: its walk is done, and `ration_word` is its word for rationing.
  __device__ __forceinline__ void start_prepared(uint64_t market_key, int64_t time, uint64_t counter,
                                                 const uint64_t* ration_word) {
    key = market_key;
    t = time;
    first_word = counter + lane * kGolden;
    words_left = 0;
    prepared = ration_word;
  }

  __device__ __forceinline__ void load() {
    static_cast<MarketNumbers&>(*this) = numbers_of(launch, m);
    start(key, t);
    if (kWithLevers && launch.regime) take_regime(launch.regime[m]);
    fetch_book(launch, sell, launch.bid + m * levels, launch.ask + m * levels);
    accept_book();
    find_best();
  }

  __device__ __forceinline__ void store() {
    store_book();
    if (leads()) {
      store_numbers(launch, m, *this);
      launch.volume[m] += volume;
      launch.trades[m] += trades;
      if (kWithLevers && launch.regime) launch.regime[m] = regime;
    }
  }

  __device__ __forceinline__ bool leads() const { return lane == 0; }
  __device__ __forceinline__ bool stopped() const { return market_has_stopped(error); }

  // Begin to copy a book to shared memory. Rows of 8 ticks and more begin at multiples of 16 bytes.
  static __device__ __forceinline__ void fetch_book(const Launch& launch, int* book, const int32_t* from_bid,
                                                    const int32_t* from_ask) {
    const int levels = KS_LEVELS, grid = Flow::grid_of(levels);
#pragma unroll 1
    for (int tick = 4 * (threadIdx.x % kWarpLanes); tick < grid; tick += 4 * kWarpLanes) {
      if (tick < levels) {
        copy_16_bytes_ahead(book + grid + tick, from_bid + tick);
        copy_16_bytes_ahead(book + tick, from_ask + tick);
      } else {
        *reinterpret_cast<int4*>(book + grid + tick) = *reinterpret_cast<int4*>(book + tick) = make_int4(0, 0, 0, 0);
      }
    }
  }

  // Wait for the book, and count the room that it leaves.
  __device__ __forceinline__ void accept_book() {
    copies_done();
    uint32_t sum = 0;
#pragma unroll 1
    for (int tick = 4 * lane; tick < grid; tick += 4 * kWarpLanes) {
      const int4 b = *reinterpret_cast<const int4*>(buy + tick), a = *reinterpret_cast<const int4*>(sell + tick);
      sum += (uint32_t)b.x + b.y + b.z + b.w + a.x + a.y + a.z + a.w;
    }
    count_room((uint32_t)warp_sum((int)sum), 0);  // of both sides together, which is more than either
  }

  __device__ __forceinline__ void find_best() {
    best_bid = find_bid(levels);
    best_ask = find_ask(0);
  }

  // The opening book.
  __device__ __forceinline__ void open_book() {
    __syncwarp();
#pragma unroll 1
    for (int tick = lane; tick < grid; tick += kWarpLanes) {
      buy[tick] = tick == p.init_price - 1 ? p.init_depth : 0;
      sell[tick] = tick == p.init_price + 1 ? p.init_depth : 0;
    }
    best_bid = p.init_depth > 0 ? p.init_price - 1 : -1;
    best_ask = p.init_depth > 0 ? p.init_price + 1 : kNoTick;
    count_room(p.init_depth, p.init_depth);
    __syncwarp();
  }

  __device__ __forceinline__ void store_book() {
    if (book_is_stored) return;
    __syncwarp();
#pragma unroll 1
    for (int tick = 4 * lane; tick < levels; tick += 4 * kWarpLanes) {
      *reinterpret_cast<int4*>(launch.bid + m * levels + tick) = *reinterpret_cast<const int4*>(buy + tick);
      *reinterpret_cast<int4*>(launch.ask + m * levels + tick) = *reinterpret_cast<const int4*>(sell + tick);
    }
  }

  // The most that an auction adds to a side. A loaded state's standing quotes may be above the cap.
  __device__ __forceinline__ int32_t growth() const {
    const int32_t added = kAddedClasses > 0 ? launch.added_agents * launch.largest_added_order : 0;
    return num_agent_indices(p) * p.max_order_qty + added + launch.slots * kMaxQuoteQty;
  }

  __device__ __forceinline__ void count_room(uint32_t total_buy, uint32_t total_sell) {
    room = overflows(total_buy, total_sell) ? -1 : 0x7fffffff - max_of((int32_t)total_buy, (int32_t)total_sell);
    roomy = launch.growth <= room;
  }

  // The market's own random words: both of them for the next 16 auctions, hashed at once, one word per lane.
  __device__ __forceinline__ void hash_market_words() {
    static_assert(kRationWord == kWalkWord + 1, "odd lanes have rationing's");
    words = random_word(key, t + lane / 2, kWalkWord + lane % 2);
    words_left = kWarpLanes / 2;
  }
  __device__ __forceinline__ uint64_t ration_word() const { return prepared ? *prepared : market_word(kRationWord); }
  __device__ __forceinline__ uint64_t market_word(uint64_t index) const {
    return shuffle(words, kWarpLanes - 2 * words_left + (int)(index - kWalkWord));
  }

  // Under levers: the regime in force, whose number may be another one from this auction on, and the coin of prices.
  __device__ __forceinline__ void take_regime(int32_t number) {
    regime = known_regime(p, number);
    if (p.levers.regimes > 0) enter_regime(launch.regimes, regime, own_row, p);
  }
  __device__ __forceinline__ void change_regime() {
    const int32_t next = prepared ? regime : regime_at(p, key, t, regime);
    if (next != regime) take_regime(next);
  }
  __device__ __forceinline__ int32_t coin() const {
    return prepared ? prepared_coin : word_coin(market_word(kWalkWord));
  }

  __device__ __forceinline__ void price_around(int32_t mid2, int32_t coin) {
    Flow::pricing = pricing_of(p, levels, origin, fundamental, last_tick, coin);
    Flow::middle = Flow::pricing.middle(mid2);
  }

  __device__ __forceinline__ void next_auction() {
    t += 1;
    words_left = max_of(words_left - 1, 0);
    prepared = nullptr;
    first_word += kGolden << 32;
  }

  // The mark: the doubled mid of the built-in resting book.
  __device__ __forceinline__ int32_t mark() const { return mark_mid2(best_bid, best_ask, last_tick, origin); }

  // Best resting prices among ticks below `below` (bids) and from `from` on (asks).
  __device__ __forceinline__ int32_t find_bid(int below) const {
#pragma unroll 1
    for (int chunk = (below + kWarpLanes - 1) / kWarpLanes - 1; chunk >= 0; --chunk) {
      const int tick = kWarpLanes * chunk + lane;
      const unsigned found = __ballot_sync(kAllLanes, tick < below && buy[tick] > 0);
      if (found) return kWarpLanes * chunk + 31 - __clz(found);
    }
    return -1;
  }

  __device__ __forceinline__ int32_t find_ask(int from) const {
#pragma unroll 1
    for (int chunk = from / kWarpLanes; chunk < grid / kWarpLanes; ++chunk) {
      const int tick = kWarpLanes * chunk + lane;
      const unsigned found = __ballot_sync(kAllLanes, tick >= from && sell[tick] > 0);
      if (found) return kWarpLanes * chunk + __ffs(found) - 1;
    }
    return kNoTick;
  }

  // Two ticks per lane, as they share a random word, starting around the mid. Where nothing rests nothing is hashed.
  // `counter`: of this lane's first word at the beat.
  __device__ __forceinline__ void cancel(uint64_t counter) {
    const int pairs = grid / 2, first = (prev_mid2 >> 2) - kWarpLanes / 2 + lane;
    int32_t bid_tick = -1, ask_tick = kNoTick;
#pragma unroll 1
    for (int i = 0; i < pairs; i += kWarpLanes) {
      const int pair = (first + i) & (pairs - 1);
      int2 b = make_int2(0, 0), a = b;
      const bool mine = grid > kWarpLanes || i + lane < pairs;  // of the smallest grids half the lanes have none
      if (mine) {
        b = reinterpret_cast<int2*>(buy)[pair];
        a = reinterpret_cast<int2*>(sell)[pair];
      }
      if (!__any_sync(kAllLanes, (b.x | b.y | a.x | a.y) != 0)) continue;
      const uint64_t word = mix64(counter + (kCancelWord + (uint64_t)(int64_t)(pair - lane)) * kGolden);
      b.x = after_cancel(b.x, p.cancel_threshold, word, 0, 0);
      b.y = after_cancel(b.y, p.cancel_threshold, word, 1, 0);
      a.x = after_cancel(a.x, p.cancel_threshold, word, 0, 1);
      a.y = after_cancel(a.y, p.cancel_threshold, word, 1, 1);
      if (mine) {
        reinterpret_cast<int2*>(buy)[pair] = b;
        reinterpret_cast<int2*>(sell)[pair] = a;
      }
      if (b.x + b.y > 0) bid_tick = max_of(bid_tick, 2 * pair + (b.y > 0));
      if (a.x + a.y > 0) ask_tick = min_of(ask_tick, 2 * pair + (a.x == 0));
    }
    best_bid = warp_max(bid_tick);
    best_ask = warp_min(ask_tick);
    __syncwarp();
  }

  __device__ __forceinline__ void cancel() { cancel(first_word); }

  // new[tick] = old[tick + shift], read a chunk ahead of what is written.
  __device__ __forceinline__ void shift_grid(int32_t shift) {
#pragma unroll 1
    for (int i = 0; i < grid; i += kWarpLanes) {
      const int tick = (shift > 0 ? i : grid - kWarpLanes - i) + lane, from = tick + shift;
      const bool kept = from >= 0 && from < levels && tick < levels;
      const int32_t b = kept ? buy[from] : 0, a = kept ? sell[from] : 0;
      __syncwarp();
      buy[tick] = b;
      sell[tick] = a;
      __syncwarp();
    }
    find_best();
  }
};

}  // namespace ks
