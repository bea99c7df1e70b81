// jax_calls.cpp: launches as JAX sees them, through XLA's foreign function interface. kineticsim_env/jax/calls.py builds this
// library, with XLA's headers, and registers its two handlers.
//
// A call has the arrays that its launch reads and writes, and as an attribute the name of its launch: a digest of struct Launch and
// struct Launcher, which Python has told this library beforehand. So a name means the same for ever, and another process that
// does not know it is told so. Each array's size and place are looked at; nothing waits, and nothing is allocated.
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "launching.h"
#include "xla/ffi/api/ffi.h"

namespace ks {
namespace {

namespace ffi = xla::ffi;

struct Known {
  Launch launch;                    // without pointers
  std::vector<Launcher> launchers;  // of each device, or of the CPU
};

std::mutex known_mutex;
auto& known = *new std::unordered_map<std::string, Known>;  // entries stay, and never change

const Known* find(std::string_view name) {
  const std::lock_guard<std::mutex> lock(known_mutex);
  const auto found = known.find(std::string(name));
  return found == known.end() ? nullptr : &found->second;
}

ffi::Error refuse(const std::string& what) { return ffi::Error(ffi::ErrorCode::kInvalidArgument, what); }

// Point to the arrays: those that are written, whose results are the arguments' memory, then those that are only read, and last
// results that are no arguments, as nobody minds what they were.
ffi::Error place(Launch& launch, const Launcher& launcher, const ffi::RemainingArgs& arguments, ffi::RemainingRets& results) {
  const size_t state = launcher.num_state, given = state + launcher.num_tables, all = given + results.size() - state;
  if (arguments.size() != given || results.size() < state || all > kMostTensors)
    return refuse("market launch: expected " + std::to_string(given) + " arrays, got " + std::to_string(arguments.size()));
  for (size_t i = 0; i < all; ++i) {
    const bool written = i < state || i >= given;
    ffi::AnyBuffer array = written ? **results.get<ffi::AnyBuffer>(i < state ? i : i - given + state)
                                   : *arguments.get<ffi::AnyBuffer>(i);
    void* const data = array.untyped_data();
    if ((int64_t)array.size_bytes() != launcher.bytes[i] || (int64_t)data % kAlignment != 0)
      return refuse("market launch: expected as array " + std::to_string(i) + " " + std::to_string(launcher.bytes[i]) +
                    " aligned bytes, got " + std::to_string(array.size_bytes()));
    if (i < state && data != arguments.get<ffi::AnyBuffer>(i)->untyped_data())
      return refuse("market launch: the result of array " + std::to_string(i) + " lies elsewhere than the array");
    pointer(launch, launcher.offsets[i]) = data;
  }
  return ffi::Error::Success();
}

ffi::Error play(int device, void* stream, std::string_view name, const ffi::RemainingArgs& arguments,
                ffi::RemainingRets& results) {
  const Known* const found = find(name);
  if (!found)
    return refuse("market launch: this program was compiled in another process; make its environment here, and "
                  "trace it again");
  for (const Launcher& launcher : found->launchers) {
    if (launcher.device != device) continue;
    Launch launch = found->launch;
    if (ffi::Error error = place(launch, launcher, arguments, results); error.failure()) return error;
    if (device < 0) {
      reinterpret_cast<CpuFunction*>(launcher.function)(&launch);  // a market that has to stop says so in its error word
      return ffi::Error::Success();
    }
    const int code = launch_kernel(launcher, launcher.function, launcher.grid, 1, launcher.block, stream, &launch);
    if (code == 0) return ffi::Error::Success();
    return ffi::Error(ffi::ErrorCode::kInternal, "cuLaunchKernel: error " + std::to_string(code));
  }
  return refuse(device < 0 ? "market launch: the environment was made for GPUs, and this program runs on a CPU; make it "
                             "with device='cpu'"
                           : "market launch: the environment was made for a CPU, or without GPU " + std::to_string(device) +
                                 "; make it with device='cuda', or call programs with arrays on the CPU");
}

ffi::Error play_on_cpu(std::string_view name, ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  return play(-1, nullptr, name, arguments, results);
}

ffi::Error play_on_gpu(void* stream, int32_t device, std::string_view name, ffi::RemainingArgs arguments,
                       ffi::RemainingRets results) {
  return play(device, stream, name, arguments, results);
}

}  // namespace
}  // namespace ks

XLA_FFI_DEFINE_HANDLER_SYMBOL(ks_jax_cpu, ks::play_on_cpu,
                              xla::ffi::Ffi::Bind().Attr<std::string_view>("launch").RemainingArgs().RemainingRets());

XLA_FFI_DEFINE_HANDLER_SYMBOL(ks_jax_gpu, ks::play_on_gpu,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<void*>>()
                                  .Ctx<xla::ffi::DeviceOrdinal>()
                                  .Attr<std::string_view>("launch")
                                  .RemainingArgs()
                                  .RemainingRets(),
                              {xla::ffi::Traits::kCmdBufferCompatible});

extern "C" {

// Know a launch by its name, on `count` devices.
int64_t ks_jax_know(const char* name, const ks::Launch* launch, const ks::Launcher* launchers, int64_t count) {
  const std::lock_guard<std::mutex> lock(ks::known_mutex);
  ks::known.try_emplace(name, ks::Known{*launch, {launchers, launchers + count}});
  return 0;
}

int64_t ks_jax_sizes() { return (int64_t)(sizeof(ks::Launch) + sizeof(ks::Launcher)); }
}
