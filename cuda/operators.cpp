// operators.cpp: launches as torch sees them. Operators are registered for programs that torch.compile makes one graph
// of. For all other programs there is one C call, ks_step, which plays a step in a microsecond. This file is part of the
// C++ library, which kineticsim_env/engines/operators.py calls.
//
// A wrong argument cannot reach other memory: an operator checks each tensor's device, size and layout, takes
// pointers from the tensors that it is given, and everything else from a launcher that Python has registered.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "launching.h"
#include "model/market.h"
#include "model/tasks.h"

namespace ks {
namespace {

enum { kPlayed = 0, kMoved = -1, kShared = -2 };  // what ks_step returns, beside the driver's errors

struct Record {
  Launcher launcher;
  Launch launch;                   // with pointers to `live`
  std::vector<at::Tensor> live;    // the tensors, whose memory may have been moved
  std::vector<const char*> starts; // their addresses at binding
  std::vector<size_t> sizes;       // bytes
  std::vector<at::Tensor> outputs;
  int64_t played = 0;              // launches by operators, which Python reads and resets
  std::mutex mutex;

  bool on_gpu() const { return launcher.device >= 0; }
};

std::mutex registry_mutex;
auto& registry = *new std::unordered_map<int64_t, std::shared_ptr<Record>>;  // tensors may not be freed after Python ends
int64_t next_id = 1;

std::shared_ptr<Record> find(int64_t id) {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  const auto found = registry.find(id);
  return found == registry.end() ? nullptr : found->second;
}

std::shared_ptr<Record> get(int64_t id) {
  auto record = find(id);
  TORCH_CHECK(record, "launcher: expected the number of an engine that is still there, got ", id);
  return record;
}

// Launching -----------------------------------------------------------------------------------------------------------

void* current_stream(int device) {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  return guard.getStream(c10::Device(c10::DeviceType::CUDA, (c10::DeviceIndex)device)).native_handle();
}

// As on a GPU, a market that has to stop says so in its error word.
void execute(const Launcher& launcher, Launch& launch) {
  if (launcher.device < 0) {
    reinterpret_cast<CpuFunction*>(launcher.function)(&launch);
    return;
  }
  const int64_t function = launch.records > 1 ? launcher.series_function : launcher.function;
  const int code = launch_kernel(launcher, function, launcher.grid, 1, launcher.block, current_stream(launcher.device),
                                 &launch);
  TORCH_CHECK(code == 0, "cuLaunchKernel: error ", code, " (grid ", launcher.grid, ", block ", launcher.block, ", ",
              launcher.shared, " bytes shared)");
}

// Tensors -------------------------------------------------------------------------------------------------------------

bool is_at(const at::Tensor& tensor, int device) {
  return device < 0 ? tensor.is_cpu() : tensor.is_cuda() && tensor.get_device() == device;
}

void check(const char* name, const at::Tensor& tensor, const Launcher& launcher, int64_t bytes) {
  TORCH_CHECK(is_at(tensor, launcher.device) && tensor.is_contiguous() && (int64_t)tensor.nbytes() == bytes &&
                  (int64_t)tensor.data_ptr() % kAlignment == 0,
              name, ": expected a contiguous tensor of ", bytes, " bytes on the engine's device, got ", tensor.scalar_type(),
              " of ", tensor.nbytes(), " bytes on ", tensor.device());
}

void check_type(const char* name, const at::Tensor& tensor, at::ScalarType type) {
  TORCH_CHECK(tensor.scalar_type() == type, name, ": expected ", type, ", got ", tensor.scalar_type());
}

void place(Launch& launch, const Launcher& launcher, const char* name, at::TensorList tensors, int first, int count) {
  TORCH_CHECK((int64_t)tensors.size() == count, name, ": expected ", count, " tensors, got ", tensors.size());
  for (int i = 0; i < count; ++i) {
    check(name, tensors[i], launcher, launcher.bytes[first + i]);
    pointer(launch, launcher.offsets[first + i]) = tensors[i].data_ptr();
  }
}

// An input as the engine can read it. A compiler may pass a state tensor where the program has a copy of it, and a
// launch writes to its state before it has read all of its input.
at::Tensor readable(const char* name, const at::Tensor& given, at::TensorList state, int device) {
  TORCH_CHECK(is_at(given, device), name, ": expected a tensor on the engine's device, got one on ", given.device());
  at::Tensor dense = given.contiguous();
  const char* start = (const char*)dense.data_ptr();
  const auto overlaps = [&](const at::Tensor& other) {
    const char* there = (const char*)other.data_ptr();
    return start < there + other.nbytes() && there < start + dense.nbytes();
  };
  const bool copies = (int64_t)start % kAlignment != 0 || std::any_of(state.begin(), state.end(), overlaps);
  return copies ? dense.clone() : dense;
}

// A copy of the record's launch, which no other thread changes meanwhile.
std::pair<Launcher, Launch> copy_of(Record& record, int mode) {
  const std::lock_guard<std::mutex> lock(record.mutex);
  TORCH_CHECK(record.launch.env_mode == mode, "launcher: got one for another operator");
  record.played += 1;
  return {record.launcher, record.launch};
}

void set_input(Launch& launch, const Launcher& launcher, const at::Tensor& input) {
  const int64_t slots = launch.markets * launch.slots, width = slots ? input.numel() / slots : 0;
  if (launcher.least_width == 0) {
    check_type("actions", input, at::kLong);
    TORCH_CHECK(input.numel() == slots, "actions: expected ", slots, " choices, got ", input.numel());
    launch.choices = input.const_data_ptr<int64_t>();
  } else {
    check_type("actions", input, at::kFloat);
    TORCH_CHECK(width >= launcher.least_width && input.numel() == slots * width, "actions: expected ",
                launcher.least_width, " numbers or more for each of ", slots, " slots, got ", input.numel());
    launch.actions = input.const_data_ptr<float>();
    launch.action_stride = (int32_t)width;
  }
}

// Operators -----------------------------------------------------------------------------------------------------------

void step(at::TensorList state, at::TensorList tables, const at::Tensor& actions, int64_t id) {
  auto [launcher, launch] = copy_of(*get(id), kLaunchModeEnvStep);
  place(launch, launcher, "state", state, 0, launcher.num_state);
  place(launch, launcher, "tables", tables, launcher.num_state, launcher.num_tables);
  const at::Tensor input = readable("actions", actions, state, launcher.device);
  set_input(launch, launcher, input);
  execute(launcher, launch);
}

// Where a run's series go, by enum Series.
constexpr int32_t* Launch::*kSeries[] = {
    &Launch::series_last_price, &Launch::series_volume,    &Launch::series_mid2,
    &Launch::series_fundamental, &Launch::series_best_bid, &Launch::series_best_ask,
    &Launch::series_bid_depth,  &Launch::series_ask_depth, &Launch::series_signed_volume};

// `recorded` says of each tensor of `series` which it is.
void run(at::TensorList state, at::TensorList tables, const std::optional<at::Tensor>& quotes,
         const std::optional<at::Tensor>& fills, const std::optional<at::Tensor>& value, at::TensorList series,
         at::IntArrayRef recorded, int64_t decisions, int64_t auctions, int64_t reach, int64_t id) {
  auto [launcher, launch] = copy_of(*get(id), kLaunchModeRun);
  TORCH_CHECK(decisions >= 0 && auctions >= 0 && decisions < (1 << 30) && auctions < (1 << 30),
              "decisions and auctions: expected 0 to 2^30, got ", decisions, " and ", auctions);
  place(launch, launcher, "state", state, 0, launcher.num_state);
  place(launch, launcher, "tables", tables, launcher.num_state, launcher.num_tables);
  launch.decisions = (int32_t)decisions;
  launch.auctions = (int32_t)auctions;
  const int64_t total = decisions * auctions, rows = decisions * launch.markets * launch.slots;
  launch.growth = total > 0 && launcher.growth > 0x7fffffff / total ? 0x7fffffff : (int32_t)(launcher.growth * total);
  at::Tensor input;
  launch.new_quotes = nullptr;
  if (quotes) {
    input = readable("quotes", *quotes, state, launcher.device);
    check_type("quotes", input, at::kInt);
    TORCH_CHECK(input.numel() == 4 * rows, "quotes: expected ", 4 * rows, " numbers, got ", input.numel());
    launch.new_quotes = input.const_data_ptr<int32_t>();
  }
  const auto out = [&, &launcher = launcher](const char* name, const at::Tensor& tensor, at::ScalarType type,
                                             int64_t count) -> void* {
    check_type(name, tensor, type);
    check(name, tensor, launcher, count * (int64_t)c10::elementSize(type));
    return tensor.data_ptr();
  };
  launch.fills = fills ? (int64_t*)out("fills", *fills, at::kLong, 2 * rows) : nullptr;
  launch.value = value ? (int64_t*)out("value", *value, at::kLong, rows) : nullptr;
  TORCH_CHECK(series.size() == recorded.size(), "series: expected ", recorded.size(), " tensors, got ", series.size());
  launch.records = !series.empty();
  for (const auto place : kSeries) launch.*place = nullptr;
  for (size_t i = 0; i < series.size(); ++i) {
    TORCH_CHECK(recorded[i] >= 0 && recorded[i] < (int64_t)std::size(kSeries), "recorded: expected numbers of enum Series, got ",
                recorded[i]);
    launch.*kSeries[recorded[i]] = (int32_t*)out("series", series[i], at::kInt, launch.markets * total);
    if (recorded[i] >= kSeriesBestBid) launch.records = 2;
  }
  TORCH_CHECK(launch.records < 2 || launcher.device < 0 || launcher.series_function, "record: expected one of last_price, "
              "volume, mid2 and fundamental, got a series whose kernel is not compiled yet; record best_bid once before");
  launch.reach = (int32_t)std::clamp<int64_t>(reach, 0, 0x7fffffff);
  if (total > 0) execute(launcher, launch);
}

// Outside of graphs ---------------------------------------------------------------------------------------------------

// The tensors that a launcher's own launch is bound to, for ks_step to look after, and those that `copies` returns.
void watch(at::TensorList live, at::TensorList outputs, int64_t id) {
  const auto record = get(id);
  TORCH_CHECK(outputs.size() <= kMostOutputs, "outputs: got ", outputs.size(), " tensors");
  for (const at::Tensor& output : outputs)
    TORCH_CHECK(is_at(output, record->launcher.device) && output.dim() > 0 && output.numel() > 0 &&
                    output.select(0, 0).is_contiguous(), "outputs: got a tensor whose rows are not contiguous");
  const std::lock_guard<std::mutex> lock(record->mutex);
  record->live = live.vec();
  record->outputs = outputs.vec();
  record->starts.clear();
  record->sizes.clear();
  for (const at::Tensor& tensor : live) {
    record->starts.push_back((const char*)tensor.data_ptr());
    record->sizes.push_back(tensor.nbytes());
  }
}

// New tensors with copies of others, whose rows are contiguous; one kernel makes kMostOutputs copies.
std::vector<at::Tensor> copy_on_gpu(const Launcher& launcher, at::TensorList given) {
  std::vector<at::Tensor> results;
  for (size_t first = 0; first < given.size(); first += kMostOutputs) {
    Copies work = {};
    int64_t most = 1;
    const at::TensorList part = given.slice(first, std::min<size_t>(given.size() - first, kMostOutputs));
    for (size_t i = 0; i < part.size(); ++i) {
      results.push_back(at::empty(part[i].sizes(), part[i].options()));
      const int64_t bytes = (int64_t)results.back().nbytes(), rows = part[i].is_contiguous() ? 1 : part[i].size(0);
      const int64_t pitch = rows == 1 ? 0 : part[i].stride(0) * (int64_t)part[i].element_size();
      work.copy[i] = {(const char*)part[i].const_data_ptr(), (char*)results.back().data_ptr(), rows, bytes / rows, pitch};
      most = std::max(most, bytes);
    }
    const unsigned grid = (unsigned)std::clamp<int64_t>(most / (16 * 256), 1, 1024);
    const int code = launch_kernel(launcher, launcher.copy_function, grid, (unsigned)part.size(), 256,
                                   current_stream(launcher.device), &work);
    TORCH_CHECK(code == 0, "cuLaunchKernel: error ", code, " (copies of ", part.size(), " outputs)");
  }
  return results;
}

// Copies of the outputs that are watched.
std::vector<at::Tensor> copies(int64_t id) {
  const auto record = get(id);
  const std::lock_guard<std::mutex> lock(record->mutex);
  TORCH_CHECK(record->on_gpu() && record->launcher.copy_function, "launcher: got one without a kernel that copies");
  return copy_on_gpu(record->launcher, record->outputs);
}

// Copies of any tensors: for programs that torch compiles, and for policies. A plain clone is not enough there: inductor
// sees no change of the tensor, so it drops the clone, and the next step in the program overwrites the result.
std::vector<at::Tensor> copies_of(at::TensorList given, int64_t id) {
  const auto record = get(id);
  const bool has_kernel = record->on_gpu() && record->launcher.copy_function;
  const auto fits = [&](const at::Tensor& tensor) {
    return has_kernel && is_at(tensor, record->launcher.device) && tensor.dim() > 0 && tensor.numel() > 0 &&
           tensor.select(0, 0).is_contiguous();
  };
  std::vector<at::Tensor> results;
  std::copy_if(given.begin(), given.end(), std::back_inserter(results), fits);
  results = copy_on_gpu(record->launcher, results);
  for (size_t i = 0; i < given.size(); ++i)
    if (!fits(given[i])) results.insert(results.begin() + i, given[i].clone(at::MemoryFormat::Contiguous));
  return results;
}

}  // namespace
}  // namespace ks

extern "C" {

// Register the operators; called once in a process. Not at load time, as this library may be loaded twice.
int64_t ks_register_operators() {
  static torch::Library definitions(torch::Library::DEF, "kineticsim", std::nullopt, __FILE__, __LINE__);
  definitions.def("step(Tensor(a!)[] state, Tensor[] tables, Tensor actions, int launcher) -> ()");
  definitions.def(
      "run(Tensor(a!)[] state, Tensor[] tables, Tensor? quotes, Tensor(b!)? fills, Tensor(c!)? value, "
      "Tensor(d!)[] series, int[] recorded, int decisions, int auctions, int reach, int launcher) -> ()");
  definitions.def("watch(Tensor[] live, Tensor[] outputs, int launcher) -> ()");
  definitions.def("copies(int launcher) -> Tensor[]");
  definitions.def("copies_of(Tensor[] outputs, int launcher) -> Tensor[]");
  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
    definitions.impl("step", torch::dispatch(key, TORCH_FN(ks::step)));
    definitions.impl("run", torch::dispatch(key, TORCH_FN(ks::run)));
    definitions.impl("copies_of", torch::dispatch(key, TORCH_FN(ks::copies_of)));
  }
  definitions.impl("watch", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(ks::watch)));
  definitions.impl("copies", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(ks::copies)));
  return 0;
}

// Returns the new launcher's number.
int64_t ks_new_launcher(const ks::Launcher* launcher, const ks::Launch* launch) {
  auto record = std::make_shared<ks::Record>();
  record->launcher = *launcher;
  record->launch = *launch;
  const std::lock_guard<std::mutex> lock(ks::registry_mutex);
  ks::registry[ks::next_id] = record;
  return ks::next_id++;
}

// Replace the launcher behind a number; programs that were compiled with the number launch the new one from now on.
int64_t ks_renew_launcher(int64_t id, const ks::Launcher* launcher, const ks::Launch* launch) {
  const std::shared_ptr<ks::Record> record = ks::find(id);
  if (!record) return ks::kMoved;
  const std::lock_guard<std::mutex> lock(record->mutex);
  record->launcher = *launcher;
  record->launch = *launch;
  return 0;
}

void ks_free_launcher(int64_t id) {
  std::shared_ptr<ks::Record> record = ks::find(id);  // its tensors are released after the lock
  const std::lock_guard<std::mutex> lock(ks::registry_mutex);
  ks::registry.erase(id);
}

// Play a step on `stream` with the tensors that are bound, reading `bytes` of input. Returns 0; or the driver's error; or,
// without a launch, kMoved if a tensor has another address or size by now, kShared if the input is one of the tensors, not
// aligned, or not what all slots of all markets need.
int64_t ks_step(int64_t id, const char* input, int64_t bytes, int64_t stride, void* stream) {
  const std::shared_ptr<ks::Record> record = ks::find(id);
  if (!record) return ks::kMoved;
  const std::lock_guard<std::mutex> lock(record->mutex);
  const int64_t slots = record->launch.markets * record->launch.slots, width = record->launcher.least_width;
  const int64_t needed = width == 0 ? slots * (int64_t)sizeof(int64_t) : slots * stride * (int64_t)sizeof(float);
  const bool reads = record->launch.env_mode == ks::kLaunchModeEnvStep;
  bool shares = (int64_t)input % ks::kAlignment != 0 || (reads && (bytes != needed || stride < width));
  for (size_t i = 0; i < record->live.size(); ++i) {
    const at::Tensor& tensor = record->live[i];
    const char* start = record->starts[i];
    if (tensor.const_data_ptr() != start || tensor.nbytes() != record->sizes[i]) return ks::kMoved;
    shares |= input < start + record->sizes[i] && start < input + bytes;
  }
  if (shares) return ks::kShared;
  const ks::Launcher& launcher = record->launcher;
  ks::Launch& launch = record->launch;
  if (launcher.least_width == 0) launch.choices = reinterpret_cast<const int64_t*>(input);
  else launch.actions = reinterpret_cast<const float*>(input), launch.action_stride = (int32_t)stride;
  return ks::launch_kernel(launcher, launcher.function, launcher.grid, 1, launcher.block, stream, &launch);
}

// Where a launcher counts the launches of operators; there as long as the launcher is.
int64_t ks_played(int64_t id) {
  const auto record = ks::find(id);
  return record ? (int64_t)&record->played : 0;
}

int64_t ks_sizeof_launcher() { return (int64_t)sizeof(ks::Launcher); }
}
