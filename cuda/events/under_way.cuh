// under_way.cuh: what slots of a market have submitted and has not arrived yet, where it may arrive in a later decision: the market's
// part of Launch::due, of due_quotes and of due_flags, oldest first. The lanes that share a market all ask, and the first of them writes.
#pragma once

#include "events/columns.cuh"
#include "model/records.h"

// Whether quotes may wait so long: in a kernel only if it was compiled for those that do (kineticsim_env/engines/cuda.py).
#ifndef KS_UNDER_WAY
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define KS_UNDER_WAY 0
#else
#define KS_UNDER_WAY 1
#endif
#endif

namespace ks {

// Whether everything that is submitted is under way first: then there is one code for what arrives, not two.
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
constexpr bool kAllUnderWay = KS_UNDER_WAY != 0;
#else
constexpr bool kAllUnderWay = false;
#endif

// As those of what arrives: its flags are what was submitted, and what comes of it goes where the present decision's does.
template <typename Records>
struct DueRecords {
  const int32_t* flags;
  Records& records;

  KS_ON_LANE OrderFlags flags_of(int i) const { return {flags[i]}; }
  KS_ON_LANE void reject(int i, int32_t side, Reject why) const { records.reject(i, side, why); }
};

template <typename Lanes>
struct UnderWay {
  static constexpr uint64_t kNever = ~(uint64_t)0;
  const Launch& launch;
  const int64_t m;

  KS_ON_LANE bool is_kept() const { return KS_UNDER_WAY != 0 && launch.due != nullptr; }
  // The event at which the oldest is due.
  KS_ON_LANE uint64_t next() const { return is_kept() && due()[0] > 0 ? (uint64_t)due()[0] - 1 : kNever; }
  KS_ON_LANE const Quote* quotes() const { return reinterpret_cast<const Quote*>(quotes_of(0)); }
  KS_ON_LANE const int32_t* flags() const { return flags_of(0); }

  // Where there is no room it takes the place of the newest. None arrives before one that was submitted earlier.
  template <typename Records>
  KS_ON_LANE void submit(const Quote* fresh, const Records& records, uint64_t event) const {
    Lanes::sync();
    if (Lanes::leads()) {
      int i = 0;
#pragma unroll 1
      while (i < kMostUnderWay - 1 && due()[i] > 0) ++i;
      const int64_t before = i > 0 ? due()[i - 1] : 0, mine = (int64_t)event + 1;
      due()[i] = mine > before ? mine : before;
#pragma unroll 1
      for (int n = 0; n < count(); ++n) {
        int32_t* const to = quotes_of(i) + 4 * n;
        to[0] = fresh[n].bid_price, to[1] = fresh[n].bid_qty, to[2] = fresh[n].ask_price, to[3] = fresh[n].ask_qty;
        flags_of(i)[n] = records.flags_of(n).word;
      }
    }
    Lanes::sync();
  }
  // The oldest has arrived.
  KS_ON_LANE void drop_first() const { drop(1); }
  KS_ON_LANE void clear() const {
    if (next() != kNever) drop(kMostUnderWay);
  }

 private:
  KS_ON_LANE int count() const { return launch.slots * launch.orders_per_side; }  // of each submission's records
  KS_ON_LANE int64_t* due() const { return launch.due + m * kMostUnderWay; }
  KS_ON_LANE int32_t* quotes_of(int i) const { return launch.due_quotes + (m * kMostUnderWay + i) * 4 * count(); }
  KS_ON_LANE int32_t* flags_of(int i) const { return launch.due_flags + (m * kMostUnderWay + i) * count(); }
  KS_ON_LANE void drop(int oldest) const {
    Lanes::sync();
    if (Lanes::leads()) move_up(due(), 1, oldest), move_up(quotes_of(0), 4 * count(), oldest), move_up(flags_of(0), count(), oldest);
    Lanes::sync();
  }
  // Rows of so many numbers, by so many places.
  template <typename Number>
  static KS_ON_LANE void move_up(Number* rows, int width, int places) {
    const int by = places * width, all = kMostUnderWay * width;
#pragma unroll 1
    for (int i = 0; i < all; ++i) rows[i] = i + by < all ? rows[i + by] : 0;
  }
};

}  // namespace ks
