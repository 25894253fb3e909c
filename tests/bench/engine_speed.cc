// Speed of the CPU backend on one model file: prefill and decode in tokens a second, median of the rounds.
//   engine_speed MODEL.gguf [threads] [isa] [prompt tokens] [decode tokens] [sequences] [rounds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "common/engine/cpu_backend.h"

namespace millrace {
namespace {

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// Time by the clock, and on the processors: the latter holds on a busy machine, with one thread.
class Watch {
 public:
  double Clock() const { return Seconds(start_); }
  double Processor() const { return static_cast<double>(std::clock() - processor_) / CLOCKS_PER_SEC; }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const std::clock_t processor_ = std::clock();
};

// Tokens a second of one phase, by both.
struct Speed {
  double clock = 0;
  double processor = 0;
};

Speed Per(const Watch& watch, double tokens) { return {tokens / watch.Clock(), tokens / watch.Processor()}; }

void Print(const char* phase, std::vector<Speed> rounds) {
  const auto median = [&](double Speed::*by) {
    std::sort(rounds.begin(), rounds.end(), [by](const Speed& a, const Speed& b) { return a.*by < b.*by; });
    return rounds[rounds.size() / 2].*by;
  };
  const double processor = median(&Speed::processor), clock = median(&Speed::clock);
  std::printf("%s: %.1f tok/s (best %.1f), %.1f a processor second\n", phase, clock, rounds.back().clock, processor);
}

struct Request {
  uint32_t prompt = 512;
  uint32_t decode = 64;
  uint32_t sequences = 1;
};

// Tokens a second of both phases.
StatusOr<std::pair<Speed, Speed>> Round(engine::Backend& backend, const Request& request) {
  const uint32_t blocks = kv::BlocksFor(request.prompt + request.decode);
  std::vector<kv::BlockIndex> indices(size_t{blocks} * request.sequences);
  std::iota(indices.begin(), indices.end(), 0);
  std::vector<int32_t> prompt(request.prompt);
  for (uint32_t i = 0; i < request.prompt; ++i)
    prompt[i] = static_cast<int32_t>((i * 7919 + 13) % backend.vocab_size());
  const Watch prefill_watch;
  for (uint32_t s = 0; s < request.sequences; ++s) {
    const engine::SequenceStep step{prompt, 0, std::span(indices).subspan(size_t{s} * blocks, blocks), true};
    MR_RETURN_IF_ERROR(backend.Step({&step, 1}, nullptr));
  }
  const Speed prefill = Per(prefill_watch, request.prompt * request.sequences);
  const Watch decode_watch;
  for (uint32_t i = 0; i < request.decode; ++i) {
    std::vector<engine::SequenceStep> steps;
    for (uint32_t s = 0; s < request.sequences; ++s) {
      steps.push_back({std::span(prompt).subspan(i % prompt.size(), 1), request.prompt + i,
                       std::span(indices).subspan(size_t{s} * blocks, blocks), true});
    }
    MR_RETURN_IF_ERROR(backend.Step(steps, nullptr));
  }
  return std::pair(prefill, Per(decode_watch, request.decode * request.sequences));
}

Status Run(int argc, char** argv) {
  const auto number = [&](int index, uint32_t otherwise) {
    return argc > index ? static_cast<uint32_t>(std::strtoul(argv[index], nullptr, 10)) : otherwise;
  };
  if (argc < 2) return InvalidArgument("a model file is needed");
  engine::CpuOptions options{.model_path = argv[1], .threads = number(2, 0)};
  MR_ASSIGN_OR_RETURN(options.isa, engine::cpu::ParseIsa(argc > 3 ? argv[3] : "auto"));
  const Request request{number(4, 512), number(5, 64), number(6, 1)};
  options.kv_blocks = kv::BlocksFor(request.prompt + request.decode) * request.sequences;
  const auto start = std::chrono::steady_clock::now();
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Backend> backend, engine::OpenCpuBackend(options));
  std::printf("%s, loaded in %.2f s\n", backend->description().c_str(), Seconds(start));
  std::vector<Speed> prefill, decode;
  for (uint32_t round = 0; round < number(7, 5); ++round) {
    MR_ASSIGN_OR_RETURN(const auto speeds, Round(*backend, request));
    prefill.push_back(speeds.first);
    decode.push_back(speeds.second);
  }
  Print("prefill", prefill);
  Print("decode", decode);
  return OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const millrace::Status status = millrace::Run(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
