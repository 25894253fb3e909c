// Put, get and lookup rates of the disk tier with blocks of the default model's size, beside raw writes and reads of
// the same files' disk. MILLRACE_BENCH_PATH chooses the disk (default: the temporary folder).

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/base/time.h"
#include "common/store/rocksdb/rocksdb_tier.h"

namespace millrace::store {
namespace {

constexpr size_t kBlockBytes = 1474560;  // 64 tokens of 30 layers of 3 heads of 64, K and V in F16
constexpr uint64_t kCapacity = 4ull << 30;
constexpr uint32_t kBlocks = 512;
constexpr uint32_t kWritten = 256;  // blocks of each write benchmark: the same bytes for all

class Folder {
 public:
  Folder() {
    const char* base = std::getenv("MILLRACE_BENCH_PATH");
    path_ =
        (base == nullptr ? std::filesystem::temp_directory_path().string() : std::string(base)) + "/store_bench_XXXXXX";
    MR_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

kv::BlockKey Key(uint64_t n) {
  kv::BlockKey key;
  for (int i = 0; i < 8; ++i) key.bytes[i] = static_cast<uint8_t>(n * 0x9E3779B97F4A7C15 >> (56 - 8 * i));
  return key;
}

std::vector<std::byte> RandomBytes(size_t size) {
  std::vector<std::byte> bytes(size);
  Rng rng(1);
  for (size_t i = 0; i + 8 <= size; i += 8) {
    const uint64_t word = rng.Next64();
    for (size_t k = 0; k < 8; ++k) bytes[i + k] = static_cast<std::byte>(word >> (8 * k));
  }
  return bytes;
}

std::unique_ptr<Tier> OpenTier(const std::string& path, bool fsync) {
  auto tier = OpenRocksdbTier({.path = path,
                               .capacity_bytes = kCapacity,
                               .fsync = fsync,
                               .retention = {.guaranteed_seconds = 0},
                               .unix_seconds = [] { return WallClockMs() / 1000; }});
  MR_CHECK(tier.ok());
  return *std::move(tier);
}

void Report(benchmark::State& state, uint64_t blocks) {
  state.SetBytesProcessed(static_cast<int64_t>(blocks * kBlockBytes));
  state.counters["blocks/s"] = benchmark::Counter(static_cast<double>(blocks), benchmark::Counter::kIsRate);
}

void BM_RawWrite(benchmark::State& state) {
  Folder folder;
  const auto bytes = RandomBytes(kBlockBytes);
  const int fd = open((folder.path() + "/raw").c_str(), O_RDWR | O_CREAT, 0644);
  MR_CHECK(fd >= 0);
  uint64_t n = 0;
  for (auto _ : state) {
    MR_CHECK(pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>((n % (2 * kBlocks)) * kBlockBytes)) ==
             static_cast<ssize_t>(bytes.size()));
    if (state.range(0) == 1) MR_CHECK(fdatasync(fd) == 0);
    ++n;
  }
  close(fd);
  Report(state, n);
}
BENCHMARK(BM_RawWrite)->ArgName("fsync")->Arg(0)->Arg(1)->Iterations(kWritten)->UseRealTime();

void BM_Put(benchmark::State& state) {
  Folder folder;
  const auto tier = OpenTier(folder.path(), state.range(0) == 1);
  const auto batch_size = static_cast<size_t>(state.range(1));
  const auto bytes = RandomBytes(kBlockBytes);
  const uint32_t crc32c = Crc32c(bytes.data(), bytes.size());
  uint64_t n = 0;
  std::vector<TierPut> batch(batch_size);
  for (auto _ : state) {
    for (auto& put : batch) put = {.key = Key(n++), .bytes = bytes, .crc32c = crc32c};
    for (const auto& status : tier->Put(batch)) MR_CHECK(status.ok());
  }
  Report(state, n);
}
BENCHMARK(BM_Put)->ArgNames({"fsync", "batch"})->Args({0, 1})->Args({1, 1})->Iterations(kWritten)->UseRealTime();
BENCHMARK(BM_Put)->ArgNames({"fsync", "batch"})->Args({0, 16})->Args({1, 16})->Iterations(kWritten / 16)->UseRealTime();

void BM_RawRead(benchmark::State& state) {
  Folder folder;
  std::vector<std::byte> bytes = RandomBytes(kBlockBytes);
  const int fd = open((folder.path() + "/raw").c_str(), O_RDWR | O_CREAT, 0644);
  MR_CHECK(fd >= 0);
  for (uint32_t i = 0; i < kBlocks; ++i) {
    MR_CHECK(pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(i * kBlockBytes)) > 0);
  }
  uint64_t n = 0;
  for (auto _ : state) {
    MR_CHECK(pread(fd, bytes.data(), bytes.size(), static_cast<off_t>((n * 7919 % kBlocks) * kBlockBytes)) > 0);
    ++n;
  }
  close(fd);
  Report(state, n);
}
BENCHMARK(BM_RawRead)->UseRealTime();

// Reads check CRC32C: compare with BM_RawRead and BM_Crc32c.
void BM_Get(benchmark::State& state) {
  Folder folder;
  const auto tier = OpenTier(folder.path(), false);
  std::vector<std::byte> bytes = RandomBytes(kBlockBytes);
  const uint32_t crc32c = Crc32c(bytes.data(), bytes.size());
  for (uint32_t i = 0; i < kBlocks; ++i) {
    const TierPut put{.key = Key(i), .bytes = bytes, .crc32c = crc32c};
    MR_CHECK(tier->Put({&put, 1}).front().ok());
  }
  uint64_t n = 0;
  for (auto _ : state) MR_CHECK(tier->Get(Key(n++ * 7919 % kBlocks), bytes).ok());
  Report(state, n);
}
BENCHMARK(BM_Get)->UseRealTime();

void BM_Crc32c(benchmark::State& state) {
  const auto bytes = RandomBytes(kBlockBytes);
  uint64_t n = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(Crc32c(bytes.data(), bytes.size()));
    ++n;
  }
  Report(state, n);
}
BENCHMARK(BM_Crc32c);

// Chains of 32 blocks, all there, among 100,000.
void BM_Lookup(benchmark::State& state) {
  Folder folder;
  const auto tier = OpenTier(folder.path(), false);
  const auto bytes = RandomBytes(64);
  const uint32_t crc32c = Crc32c(bytes.data(), bytes.size());
  constexpr uint64_t kIndexed = 100'000;
  for (uint64_t i = 0; i < kIndexed; i += 200) {
    std::vector<TierPut> batch;
    for (uint64_t k = i; k < i + 200; ++k) batch.push_back({.key = Key(k), .bytes = bytes, .crc32c = crc32c});
    for (const auto& status : tier->Put(batch)) MR_CHECK(status.ok());
  }
  Rng rng(2);
  uint64_t n = 0;
  for (auto _ : state) {
    std::vector<kv::BlockKey> keys;
    const uint64_t first = rng.Below(kIndexed - 32);
    for (uint64_t k = 0; k < 32; ++k) keys.push_back(Key(first + k));
    MR_CHECK(tier->ContainsPrefix(keys) == 32);
    n += 32;
  }
  state.counters["keys/s"] = benchmark::Counter(static_cast<double>(n), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Lookup);

}  // namespace
}  // namespace millrace::store

BENCHMARK_MAIN();
