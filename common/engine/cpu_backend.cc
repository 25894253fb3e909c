#include "common/engine/cpu_backend.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/base/log.h"
#include "common/engine/cpu/forward.h"
#include "common/engine/cpu/plan.h"
#include "common/engine/cpu/thread_team.h"
#include "common/model/cache_dir.h"
#include "common/model/model_digest.h"

namespace millrace::engine {
namespace {

constexpr uint32_t kMostThreads = 512;

uint32_t AvailableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<uint32_t>(std::max(CPU_COUNT(&set), 1));
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(cpu::CpuModel model, const cpu::Kernels& kernels, uint32_t threads)
      : model_(std::move(model)), kernels_(kernels), team_(threads) {}

  Status Start(const CpuOptions& options) {
    MR_ASSIGN_OR_RETURN(plan_, cpu::MakePlan(model_, team_.size()));
    const model::ModelConfig& config = model_.config;
    layout_ = {config.layers, config.kv_heads, config.head_dim, options.kv_type, model_.digest, kCpuNumericsClass};
    context_ = options.context_tokens == 0 ? config.context : options.context_tokens;
    if (context_ > config.context) {
      return Status(
          Code::kInvalidArgument, Reason::kBadValue,
          "context of " + std::to_string(context_) + " tokens: the model has " + std::to_string(config.context));
    }
    const uint64_t wanted = options.kv_blocks != 0 ? options.kv_blocks : options.kv_bytes / layout_.block_bytes();
    blocks_ = static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 1, UINT32_MAX / 2));
    MR_RETURN_IF_ERROR(AllocateKv(options));
    forward_ = std::make_unique<cpu::Forward>(
        cpu::ForwardParts{&model_, &plan_, &kernels_, &layout_, kv_.data(), &team_, &progress_});
    return OkStatus();
  }

  const kv::Layout& layout() const override { return layout_; }
  uint32_t vocab_size() const override { return model_.vocab; }
  uint32_t context_tokens() const override { return context_; }
  std::span<std::byte> kv_memory() override { return kv_.first(blocks_ * layout_.block_bytes()); }
  uint32_t block_count() const override { return blocks_; }
  const std::vector<std::span<const float>>& logits() const override { return forward_->logits(); }
  uint64_t progress() const override { return progress_.load(std::memory_order_relaxed); }
  std::string description() const override {
    return std::string("cpu ") + kernels_.isa + " " + std::to_string(team_.size()) +
           (team_.size() == 1 ? " thread" : " threads");
  }

  Status Step(std::span<const SequenceStep> sequences, LayerObserver* observer) override {
    for (size_t i = 0; i < sequences.size(); ++i) {
      const Status status = Check(sequences[i]);
      if (!status.ok()) return status.Annotate("sequence " + std::to_string(i) + " of the step");
    }
    if (sequences.empty()) return InvalidArgument("a step of no sequences");
    return forward_->Step(sequences, observer);
  }

 private:
  Status AllocateKv(const CpuOptions& options) {
    const uint64_t bytes = blocks_ * layout_.block_bytes();
    if (options.allocate_kv) {
      MR_ASSIGN_OR_RETURN(kv_, options.allocate_kv(bytes));
      if (kv_.size() >= bytes && reinterpret_cast<uintptr_t>(kv_.data()) % 64 == 0) return OkStatus();
      return InvalidArgument("KV memory of " + std::to_string(kv_.size()) + " bytes: " + std::to_string(bytes) +
                             " are needed, 64-byte aligned");
    }
    MR_ASSIGN_OR_RETURN(private_kv_, cpu::Memory::Allocate(bytes));
    kv_ = {private_kv_.data(), bytes};
    return OkStatus();
  }

  Status Check(const SequenceStep& sequence) const {
    if (sequence.tokens.empty()) return InvalidArgument("no tokens");
    const uint64_t end = uint64_t{sequence.start} + sequence.tokens.size();
    if (end > context_) {
      return InvalidArgument("ends at position " + std::to_string(end) + ", the context has " +
                             std::to_string(context_));
    }
    if (sequence.blocks.size() < kv::BlocksFor(end)) {
      return InvalidArgument(std::to_string(sequence.blocks.size()) + " blocks do not cover " + std::to_string(end) +
                             " tokens");
    }
    for (kv::BlockIndex block : sequence.blocks.first(kv::BlocksFor(end))) {
      if (block >= blocks_) return InvalidArgument("block " + std::to_string(block) + " is not of this memory");
    }
    for (int32_t id : sequence.tokens) {
      if (id < 0 || static_cast<uint32_t>(id) >= model_.vocab) {
        return InvalidArgument("token id " + std::to_string(id) + " is not below " + std::to_string(model_.vocab));
      }
    }
    return OkStatus();
  }

  const cpu::CpuModel model_;
  const cpu::Kernels& kernels_;
  cpu::ThreadTeam team_;
  cpu::Plan plan_;
  kv::Layout layout_;
  uint32_t context_ = 0;
  uint32_t blocks_ = 0;
  cpu::Memory private_kv_;
  std::span<std::byte> kv_;
  std::atomic<uint64_t> progress_{0};
  std::unique_ptr<cpu::Forward> forward_;
};

std::string CacheDir(const CpuOptions& options) {
  if (!options.use_cache) return "";
  return options.cache_dir.empty() ? model::DefaultCacheDir() : options.cache_dir;
}

}  // namespace

StatusOr<std::unique_ptr<Backend>> OpenCpuBackend(const CpuOptions& options, const model::GgufFile& file,
                                                  const std::string& model_digest) {
  MR_ASSIGN_OR_RETURN(const cpu::Kernels* kernels, cpu::SelectKernels(options.isa));
  const uint32_t threads = options.threads == 0 ? AvailableProcessors() : options.threads;
  if (threads > kMostThreads) return InvalidArgument("more than " + std::to_string(kMostThreads) + " threads");
  MR_ASSIGN_OR_RETURN(cpu::CpuModel model,
                      cpu::CpuModel::Load(file, {model_digest, CacheDir(options), options.progress}));
  auto backend = std::make_unique<CpuBackend>(std::move(model), *kernels, threads);
  MR_RETURN_IF_ERROR(backend->Start(options));
  return std::unique_ptr<Backend>(std::move(backend));
}

StatusOr<std::unique_ptr<Backend>> OpenCpuBackend(const CpuOptions& options) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<const model::GgufFile> file, model::GgufFile::Open(options.model_path));
  MR_ASSIGN_OR_RETURN(const std::string digest, model::ModelDigest(options.model_path, CacheDir(options)));
  MR_RETURN_IF_ERROR(file->CheckUnchanged());
  return OpenCpuBackend(options, *file, digest);
}

}  // namespace millrace::engine
