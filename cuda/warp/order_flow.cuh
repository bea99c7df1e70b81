// order_flow.cuh: from the built-in agents' random words to quantities per tick. Most of an auction's time is spent here,
// most of it in the hash. So the code after a hash is short: sums of products and one select, as the pipe for shifts and
// comparisons is busy with hashes.
//
// A price depends on the mid, and otherwise on the side and on an offset of at most `reach` ticks or on being
// marketable. So quantities are first summed in a few bins of shared memory (kBins of them, in several copies, as lanes
// that add to the same address wait for each other), and only the bins are priced: 5 operations per bin and auction instead
// of per order. Where there are too many offsets for that (kBins 0), each order is priced and added at its tick.
#pragma once

#include "model/compiled_in.cuh"
#include "model/market.h"
#include "model/plan.h"
#include "warp/warp.cuh"

namespace ks {

template <int kBins>
struct OrderFlow {
  static constexpr int kCopies = kBins > 0 ? kBinInts / kBins : 1;
  static constexpr uint32_t kBin = 4 * kCopies;  // bytes
  static constexpr int kBinsPerLane = kBins > 32 ? kBins / 32 : 1;
  static constexpr uint32_t kNoTicks = 0xffffffffu;  // not 0, where shared memory begins on some devices
  static constexpr uint64_t kRound = kWarpLanes * kGolden;  // from a lane's random word to its next

  MarketParams p;                // those in force: a regime changes them
  const MarketParams& own_row;   // the market's
  Pricing pricing;               // of this auction, with levers,
  Middle middle;                 // and the mid's
  const int lane, levels, grid;  // grid: ticks in shared memory, a multiple of a warp
  int* const sell;               // shared [grid]: the resting book, and within an auction the whole interest
  int* const buy;                // shared [grid], follows sell
  int* const bins;               // shared: [sells, buys][width][kCopies], or of kBins 0 [sells, buys] of marketable orders
  const int reach, width;
  // Addresses that every auction needs.
  const uint32_t far_bin;        // of this lane's copy of the sells' marketable bin
  const uint32_t side;           // from there to the buys' marketable bin
  const int bin_offset;          // of the first bin that this lane prices
  const uint32_t bin_ticks;      // the address of its side's tick 0, or kNoTicks
  const int far_buys_lane;       // the lane that has summed the buys' marketable bin

  static __device__ __forceinline__ int grid_of(int levels) { return levels > kWarpLanes ? levels : kWarpLanes; }

  static __device__ __forceinline__ int book_ints(const Launch& launch) { return ks::book_ints(KS_LEVELS); }
  static __device__ __forceinline__ int shared_ints(const Launch& launch) { return run_ints(KS_LEVELS, false); }

  __device__ __forceinline__ OrderFlow(const Launch& launch, const MarketParams& row, int* book, int* bins)
      : p(with_constants(row)), own_row(row), lane(threadIdx.x % kWarpLanes), levels(KS_LEVELS), grid(grid_of(levels)), sell(book),
        buy(book + grid), bins(bins), reach(kWithLevers ? lever_reach(p, launch.regimes) : order_reach(p)),
        width(kBins > 0 ? bins_per_side(reach) : 1),
        far_bin(kBins > 0 ? fixed(shared_address(bins + lane % kCopies)) : 0), side(kBins > 0 ? fixed(kBin * width) : 0),
        bin_offset(kBins > 0 ? fixed(offset_of(first_bin())) : 0),
        bin_ticks(kBins > 0 ? fixed(ticks_of(first_bin())) : kNoTicks),
        far_buys_lane(kBins > 0 ? fixed(width * kCopies / 4) : 0) {
    clear_bins();
  }

  // A bin's offset from the mid, and where its side's ticks begin: kNoTicks for a marketable bin, or for none.
  __device__ __forceinline__ int first_bin() const { return lane * 4 / kCopies; }
  __device__ __forceinline__ int offset_of(int bin) const { return bin - (bin >= width ? width : 0) - 1 - reach; }
  __device__ __forceinline__ uint32_t ticks_of(int bin) const {
    const bool near = offset_of(bin) >= -reach && bin < 2 * width && (kBins > 16 || lane % 2 == 0);
    return near ? shared_address(bin >= width ? buy : sell) : kNoTicks;
  }

  __device__ __forceinline__ void clear_bins() {
    if (kBins > 0) reinterpret_cast<int4*>(bins)[lane] = make_int4(0, 0, 0, 0);
    else if (lane < 2) bins[lane] = 0;
  }

  __device__ __forceinline__ uint32_t near_bin(int offset) const { return far_bin + kBin * (1 + reach + offset); }

  // How far beyond the mid momentum and fundamental agents price.
  __device__ __forceinline__ int32_t taker_offset() const { return kWithLevers ? p.levers.taker_offset : 1; }
  __device__ __forceinline__ int32_t limit_price(int32_t mid2, int32_t side, int32_t offset) const {
    return kWithLevers ? pricing.limit(middle, side, offset) : price_near_mid(mid2, offset, levels);
  }

  // The address that an order is added at: its bin, given the sells' bin of its offset, or its tick.
  __device__ __forceinline__ uint32_t address(uint32_t buys, uint32_t near, bool marketable) const {
    return multiply_add(buys, side, marketable ? far_bin : near);
  }
  __device__ __forceinline__ uint32_t address_on_grid(int32_t mid2, uint32_t buys, int32_t offset, bool marketable) const {
    if (marketable) return shared_address(bins + buys);
    return shared_address(sell + limit_price(mid2, 1 - buys, offset)) + 4 * grid * buys;
  }

  // Where marketable orders are summed.
  __device__ __forceinline__ uint32_t marketable_address(uint32_t buys) const {
    return kBins > 0 ? multiply_add(buys, side, far_bin) : shared_address(bins + buys);
  }

  __device__ __forceinline__ void noise_order(uint64_t word, int32_t mid2, uint32_t lowest) {
    const uint32_t buys = word_is_buy(word);
    const bool marketable = word_is_marketable(word, p.market_order_threshold);
    uint32_t at;
    if (kBins > 0) {
      at = address(buys, multiply_add(half_offset_index(high_half(word), p.noise_spread), kBin, lowest), marketable);
    } else {
      at = address_on_grid(mid2, buys, word_offset(word, p.noise_spread), marketable);
    }
    add_at(at, word_quantity(word, p.max_order_qty));
  }

  // A momentum or fundamental agent's order.
  __device__ __forceinline__ void directional_order(uint64_t word, int32_t mid2, int32_t direction, uint32_t cheapest) {
    const uint32_t buys = directional_buys(direction, word);
    const bool marketable = word_is_marketable(word, p.market_order_threshold);
    const uint32_t at = kBins > 0 ? address(buys, multiply_add(buys, 2 * taker_offset() * kBin, cheapest), marketable)
                                  : address_on_grid(mid2, buys, buys ? taker_offset() : -taker_offset(), marketable);
    add_at(at, word_quantity(word, p.max_order_qty));
  }

  // Momentum or fundamental agents, in rounds of one agent per lane.
  __device__ __forceinline__ void directional_rounds(uint64_t counter, int count, int32_t mid2, int32_t direction) {
    const uint32_t cheapest = kBins > 0 ? fixed(near_bin(-taker_offset())) : 0;
#pragma unroll kUnroll
    for (int round = 0; round < count / kWarpLanes; ++round, counter += kRound)
      directional_order(mix64(counter), mid2, direction, cheapest);
  }

  // An order of a round that classes share. Their differences are selects, so that lanes do not diverge.
  __device__ __forceinline__ void mixed_order(uint64_t word, int32_t mid2, int32_t direction, bool noise, bool makes) {
    const uint32_t buys = directional_buys(direction, word);
    const bool marketable = word_is_marketable(word, makes ? 0 : p.market_order_threshold);
    const int32_t step = makes ? -p.maker_half_spread : taker_offset(), spread = noise ? p.noise_spread : 0;
    const int32_t offset = (int32_t)half_offset_index(high_half(word), spread) - (noise ? spread : buys ? -step : step);
    const uint32_t at = kBins > 0 ? address(buys, multiply_add(offset, kBin, near_bin(0)), marketable)
                                  : address_on_grid(mid2, buys, offset, marketable);
    add_at(at, word_quantity(word, p.max_order_qty));
  }

  // All orders of an auction. `first_word` is the counter of this lane's first random word. Each class first takes rounds of
  // one agent per lane; the remainders of all classes then share the last rounds.
  __device__ __forceinline__ void submit_orders(uint64_t first_word, int64_t t, int32_t mid2, int32_t ret, int32_t value) {
    const uint32_t lowest = kBins > 0 ? fixed(near_bin(-p.noise_spread)) : 0;
    uint64_t counter = first_word;
#pragma unroll kUnroll
    for (int pair = 0; pair < p.num_noise / (2 * kWarpLanes); ++pair, counter += 2 * kRound) {
      noise_order(mix64(counter), mid2, lowest);  // two at once share the loop's own instructions
      noise_order(mix64(counter + kRound), mid2, lowest);
    }
    if (p.num_noise & kWarpLanes) noise_order(mix64(counter), mid2, lowest);

    directional_rounds(first_word + (uint64_t)p.first_momentum * kGolden, p.num_momentum, mid2, ret);
    directional_rounds(first_word + (uint64_t)p.first_fundamental * kGolden, p.num_fundamental, mid2, value);

    if (p.num_maker >= kWarpLanes) {  // all makers of a lane are on the same side, as rounds are even: one sum suffices
      counter = first_word + (uint64_t)p.first_maker * kGolden;
      int32_t sum = 0;
#pragma unroll kUnroll
      for (int round = 0; round < p.num_maker / kWarpLanes; ++round, counter += kRound)
        sum += word_quantity(mix64(counter), p.max_order_qty);
      const bool buys = maker_buys(p.first_maker + lane, t);
      const int32_t offset = buys ? -p.maker_half_spread : p.maker_half_spread;
      add_at(kBins > 0 ? address(buys, near_bin(offset), false) : address_on_grid(mid2, buys, offset, false), sum);
    }

    // The remainders, numbered from 0 in the order noise, momentum, maker, fundamental.
    const int momentum = p.num_noise % kWarpLanes, maker = momentum + p.num_momentum % kWarpLanes,
              fundamental = maker + p.num_maker % kWarpLanes, end = fundamental + p.num_fundamental % kWarpLanes;
#pragma unroll kUnroll
    for (int first = 0; first < end; first += kWarpLanes) {
      const int i = first + lane;
      const bool noise = i < momentum, makes = i >= maker && i < fundamental;
      const int agent = i + (noise             ? p.num_noise - momentum
                             : i < maker       ? p.first_momentum + p.num_momentum - maker
                             : i < fundamental ? p.first_maker + p.num_maker - fundamental
                                               : p.first_fundamental + p.num_fundamental - end);
      const int32_t direction = noise ? 0 : i < maker ? ret : !makes ? value : maker_buys(agent, t) ? 1 : -1;
      if (i < end) mixed_order(mix64(first_word + (uint64_t)(agent - lane) * kGolden), mid2, direction, noise, makes);
    }
    __syncwarp();
  }

  // Price the bins' quantities, and clear the bins. Marketable quantity is returned, not added to the grid. `rows`: bytes
  // from the grid's rows to those that are added to.
  __device__ __forceinline__ void price_bins(int32_t mid2, int32_t& far_buys, int32_t& far_sells, uint32_t rows = 0) {
    if (kBins == 0) {
      far_sells = bins[0];
      far_buys = bins[1];
      __syncwarp();
      clear_bins();
      return;
    }
    const int4 four = reinterpret_cast<int4*>(bins)[lane];
    clear_bins();
    int32_t sums[4] = {four.x, four.y, four.z, four.w};  // of the bins from `first` on
    if (kBins <= 32) {
      sums[0] = (four.x + four.y) + (four.z + four.w);
      if (kBins == 16) sums[0] += __shfl_xor_sync(kAllLanes, sums[0], 1);
    } else if (kBins == 64) {
      sums[0] = four.x + four.y;
      sums[1] = four.z + four.w;
    }
    far_sells = shuffle(sums[0], 0);
    far_buys = shuffle(sums[0], far_buys_lane);
#pragma unroll
    for (int i = 0; i < kBinsPerLane; ++i) {
      const uint32_t ticks = i == 0 ? bin_ticks : ticks_of(first_bin() + i);
      const int offset = i == 0 ? bin_offset : offset_of(first_bin() + i);
      if (ticks != kNoTicks && sums[i] > 0)
        add_at(ticks + rows + 4 * limit_price(mid2, first_bin() + i < width, offset), sums[i]);
    }
    __syncwarp();
  }
};

}  // namespace ks
