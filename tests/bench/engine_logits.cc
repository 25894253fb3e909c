// Logits of the CPU backend after each token of a list, teacher-forced: for comparing with another engine.
//   engine_logits MODEL.gguf f16|f32 < ids > logits
// Reads ids separated by white space; writes vocab floats (native byte order) per id.
#include <cstdio>
#include <numeric>
#include <string_view>
#include <vector>

#include "common/engine/cpu_backend.h"

namespace millrace {
namespace {

Status Run(int argc, char** argv) {
  if (argc != 3) return InvalidArgument("usage: engine_logits MODEL.gguf f16|f32 < ids > logits");
  std::vector<int32_t> ids;
  for (int id = 0; std::scanf("%d", &id) == 1;) ids.push_back(id);
  engine::CpuOptions options{.model_path = argv[1]};
  options.kv_type = std::string_view(argv[2]) == "f32" ? kv::ElementType::kF32 : kv::ElementType::kF16;
  options.kv_blocks = kv::BlocksFor(ids.size());
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Backend> backend, engine::OpenCpuBackend(options));
  std::vector<kv::BlockIndex> blocks(options.kv_blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  for (uint32_t i = 0; i < ids.size(); ++i) {
    const engine::SequenceStep step{std::span(ids).subspan(i, 1), i, blocks, true};
    MR_RETURN_IF_ERROR(backend->Step({&step, 1}, nullptr));
    const std::span<const float> logits = backend->logits().front();
    if (std::fwrite(logits.data(), sizeof(float), logits.size(), stdout) != logits.size()) {
      return Unavailable("standard output is closed");
    }
  }
  return OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const millrace::Status status = millrace::Run(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
