// engine_on_host.h: what a library that stands in for the C++ engine needs beside ks_cpu_launch to be opened as one. It
// has no operators: its struct Launcher is of 0 bytes, so Python takes no step through it but `Engine.launch`.
#pragma once

#include <cstdint>

#include "model/layout.h"

extern "C" {

int64_t ks_sizeof_launch() { return sizeof(ks::Launch); }
int64_t ks_sizeof_params() { return sizeof(ks::MarketParams); }
int64_t ks_sizeof_launcher() { return 0; }
int64_t ks_register_operators() { return -1; }
int64_t ks_new_launcher(const void*, const void*) { return -1; }
int64_t ks_renew_launcher(int64_t, const void*, const void*) { return -1; }
int64_t ks_free_launcher(int64_t) { return -1; }
int64_t ks_played(int64_t) { return -1; }
int64_t ks_step(int64_t, const void*, int64_t, int64_t, void*) { return -1; }

}
