// rows.h: what a core does with a whole row of a book on the clock: take it up, store it, cancel in it. Included by
// events/book.cuh, whose load, store and cancel these are on a core. Loops are over chunks of ticks without branches, as compilers
// vectorise those; one of a known length they would unroll first, so lengths that matter are not known to them.
#pragma once

#include <cstring>

#include "model/market.h"

namespace ks {

constexpr int kRowChunk = 32;       // ticks; a smaller grid is one chunk
constexpr int kCancelChunk = 128;

template <typename Do>
inline __attribute__((always_inline)) void for_chunks(int32_t levels, int32_t low, int32_t high, const Do& of) {
  if (levels < kRowChunk) return of(0, levels);
  for (int32_t first = low & -kRowChunk; first <= high; first += kRowChunk) of(first, kRowChunk);
}

inline bool anything_in(const int32_t* row, int count) {
  uint32_t any = 0;
  for (int i = 0; i < count; ++i) any |= (uint32_t)row[i];
  return any != 0;
}

template <typename Book>
inline __attribute__((always_inline)) void mark_chunk_of(Book& book, int32_t first, int count) {
  const int32_t* const row = book.row.at + first;
  uint32_t bids = 0, asks = 0;
  for (int i = 0; i < count; ++i) bids |= (uint32_t)(row[i] > 0) << i, asks |= (uint32_t)(row[i] < 0) << i;
  book.mark_chunk(0, book.levels - first - count, reversed_bits(bids) >> (32 - count));
  book.mark_chunk(1, first, asks);
}
template <typename Book>
inline void clear_bits(Book& book) {
  for (int i = 0; i < 2 * book.words; ++i) book.bits[i] = 0;
}

template <typename Book>
uint32_t load_in_chunks(Book& book, const int32_t* all_bids, const int32_t* all_asks) {
  uint32_t bids = 0, asks = 0;
  book.stored = 0;
  clear_bits(book);
  for_chunks(book.levels, 0, book.levels - 1, [&](int32_t first, int count) __attribute__((always_inline)) {
    const int32_t *const __restrict bid = all_bids + first, *const __restrict ask = all_asks + first;
    int32_t* const __restrict row = book.row.at + first;
    uint32_t any = 0, bids_here = 0, asks_here = 0;
    for (int i = 0; i < count; ++i) {
      row[i] = bid[i] - ask[i];
      bids_here += (uint32_t)bid[i], asks_here += (uint32_t)ask[i], any |= (uint32_t)(bid[i] | ask[i]);
    }
    bids += bids_here, asks += asks_here;
    book.stored |= (uint32_t)(any != 0) << (first >> book.group_bits());
    mark_chunk_of(book, first, count);
  });
  book.find_best();
  return bids > asks ? bids : asks;
}

template <typename Book>
void store_in_chunks(Book& book, int32_t* all_bids, int32_t* all_asks) {
  uint32_t rests = 0;
  for_chunks(book.levels, 0, book.levels - 1, [&](int32_t first, int count) __attribute__((always_inline)) {
    int32_t *const __restrict bid = all_bids + first, *const __restrict ask = all_asks + first;
    const int32_t* const __restrict row = book.row.at + first;
    const uint32_t group = (uint32_t)(first >> book.group_bits()), here = anything_in(row, count);
    rests |= here << group;
    if (((book.stored >> group & 1) | here) == 0) return;
    for (int i = 0; i < count; ++i) bid[i] = max_of(row[i], 0), ask[i] = max_of(-row[i], 0);
  });
  book.stored = rests;
}

// market.h's cancelled() at each tick, of the halves of its quantity, as each product fits 32 bits then. `counter` is that of the
// first word.
__attribute__((noinline)) inline void cancel_chunk(int32_t* row, int count, int32_t threshold, uint64_t counter) {
  uint64_t words[kCancelChunk / 2];
  uint32_t halves[kCancelChunk];
  for (int i = 0; i < count / 2; ++i) words[i] = mix64(counter + (uint64_t)i * kGolden);
  std::memcpy(halves, words, count * sizeof(uint32_t));  // an even tick has the low half
  for (int i = 0; i < count; ++i) {
    const int32_t q = row[i], sign = q >> 31;
    const uint32_t units = (uint32_t)((q ^ sign) - sign), r = halves[i] >> (16 & sign) & 0xffffu;
    const uint32_t loss = (units >> 16) * (uint32_t)threshold + (((units & 0xffffu) * (uint32_t)threshold + r) >> 16);
    row[i] = q - (((int32_t)loss ^ sign) - sign);
  }
}

// The worst occupied place of a side, or -1.
template <typename Book>
inline int32_t worst_place(const Book& book, int32_t side) {
  for (int w = book.words - 1; w >= 0; --w)
    if (book.bits[side * book.words + w] != 0) return kWordBits * w + highest_bit(book.bits[side * book.words + w]) - book.lead;
  return -1;
}

// Between the outermost ticks at which anything rests.
template <typename Book>
void cancel_in_chunks(Book& book, int32_t threshold, uint64_t key, int64_t beat) {
  const uint64_t counter = word_counter(key, beat, kCancelWord);
  const int32_t levels = book.levels, lowest_bid = levels - 1 - worst_place(book, 0), highest_ask = worst_place(book, 1);
  const int32_t low = min_of(lowest_bid, book.best_ask()), high = max_of(book.best_bid(), highest_ask);
  const int32_t begin = levels < kRowChunk ? 0 : low & -kRowChunk;
  const int32_t end = levels < kRowChunk ? levels : (high | (kRowChunk - 1)) + 1;
  for (int32_t first = begin; first < end; first += kCancelChunk) {
    const int count = min_of(kCancelChunk, end - first);
    if (anything_in(book.row.at + first, count))
      cancel_chunk(book.row.at + first, count, threshold, counter + (uint64_t)(first / 2) * kGolden);
  }
  clear_bits(book);
  for_chunks(levels, low, high, [&](int32_t first, int count) __attribute__((always_inline)) {
    mark_chunk_of(book, first, count);
  });
  book.find_best();
}

}  // namespace ks
