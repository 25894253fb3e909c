// transport_bench [NAME LANES]...: reads blocks of another process's memory over a transport and compares with memcpy
// in this process. Without arguments: ucx over shared memory and over TCP. Every figure is the median of several rounds
// taken in turn with memcpy's, so the ratios hold on a busy machine where the absolute values do not.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <vector>

#include "common/base/crc32c.h"
#include "common/base/time.h"
#include "tests/conformance/transport_peer.h"

namespace millrace::transfer {
namespace {

constexpr size_t kMemory = 256 << 20;  // of each side: past every cache
constexpr size_t kInFlight = 8 << 20;  // bytes asked for at once
constexpr int kRounds = 7;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Rate {
  double gigabytes_per_second = 0;
  double cpu_ms_per_gigabyte = 0;  // of this process
};

Duration CpuTime() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return Seconds(used.tv_sec) + Duration(used.tv_nsec);
}

enum class Mode { kSpread, kSpreadWithChecksum, kOneBlock };

class Bench {
 public:
  Bench(Link& link, RemoteRegion region) : link_(link), region_(region), source_(kMemory), into_(kMemory) {
    FillPattern(source_, 1);
    std::memset(into_.data(), 1, into_.size());
  }

  Rate Memcpy(size_t size) {
    return Measure([&] {
      for (size_t at = 0; at + size <= kMemory; at += size) std::memcpy(into_.data() + at, source_.data() + at, size);
    });
  }

  // Reads kMemory in blocks of `size`, or one block as often, with up to kInFlight bytes on the way.
  Rate Gets(size_t size, Mode mode) {
    return Measure([&] { ReadAll(size, mode); });
  }
  bool failed() const { return failed_; }

  // Median time of one get of `size` bytes with nothing else on the way, in microseconds.
  double Latency(size_t size) {
    std::vector<double> times;
    for (int i = 0; i < 200; ++i) {
      std::mutex mutex;
      std::condition_variable changed;
      bool done = false;
      const TimePoint start = SystemClock().Now();
      link_.Get(region_, static_cast<size_t>(i) * size, std::span(into_).first(size), [&](const Status&) {
        std::lock_guard lock(mutex);
        done = true;
        changed.notify_one();
      });
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return done; });
      times.push_back(ToSeconds(SystemClock().Now() - start) * 1e6);
    }
    return Median(times);
  }

  uint32_t checksum() const { return checksum_; }

 private:
  template <class Work>
  static Rate Measure(Work work) {
    const TimePoint start = SystemClock().Now();
    const Duration cpu = CpuTime();
    work();
    const double gigabytes = static_cast<double>(kMemory) / 1e9;
    return {gigabytes / ToSeconds(SystemClock().Now() - start), ToMilliseconds(CpuTime() - cpu) / gigabytes};
  }

  void ReadAll(size_t size, Mode mode) {
    const size_t blocks = kMemory / size;
    const size_t window = std::clamp<size_t>(kInFlight / size, 2, link_.max_pending());
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<size_t> arrived;
    size_t asked = 0;
    size_t done = 0;
    while (done < blocks) {
      for (; asked < blocks && asked < done + window; ++asked) {
        const size_t at = mode == Mode::kOneBlock ? 0 : asked * size;
        link_.Get(region_, at, std::span(into_).subspan(at, size), [&, at](const Status& status) {
          std::lock_guard lock(mutex);
          failed_ = failed_ || !status.ok();
          arrived.push_back(at);
          if (arrived.size() >= window / 2 || mode == Mode::kSpreadWithChecksum) changed.notify_one();
        });
      }
      std::vector<size_t> ready;
      {
        std::unique_lock lock(mutex);
        const size_t enough = mode == Mode::kSpreadWithChecksum ? 1 : std::min(window / 2, blocks - done);
        changed.wait_for(lock, Milliseconds(1), [&] { return arrived.size() >= enough; });
        ready.swap(arrived);
      }
      done += ready.size();
      if (mode != Mode::kSpreadWithChecksum) continue;
      for (const size_t at : ready) checksum_ ^= Crc32c(into_.data() + at, size);
    }
  }

  Link& link_;
  const RemoteRegion region_;
  std::vector<std::byte> source_;
  std::vector<std::byte> into_;
  uint32_t checksum_ = 0;
  bool failed_ = false;
};

Status Run(const std::string& name, const std::string& lanes) {
  const TransportOptions options{.lanes = lanes};
  for (const TransportDescriptor* kind : All()) {
    if (kind->name != name) continue;
    MR_ASSIGN_OR_RETURN(std::unique_ptr<TestPeer> peer, MakePeer(*kind, options));
    MR_ASSIGN_OR_RETURN(const PeerRegion region, peer->AddRegion(kMemory, 1, true));
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, kind->make(options));
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Link> link, transport->Connect(peer->address()));
    MR_ASSIGN_OR_RETURN(const RemoteRegion remote, link->Import(region.descriptor));
    Bench bench(*link, remote);
    bench.Gets(1 << 20, Mode::kSpread);
    if (bench.failed()) return Unavailable("gets fail");
    std::string used;
    for (const std::string& lane : link->info().lanes) used += " " + lane;
    std::printf("%s %s: lanes%s, one get of 4 KiB takes %.1f us, of 64 KiB %.1f us\n", name.c_str(), lanes.c_str(),
                used.c_str(), bench.Latency(4096), bench.Latency(64 << 10));
    std::printf("%9s | %22s | %30s | %20s | %8s\n", "", "memcpy", "get", "get and CRC32C", "one block");
    std::printf("%9s | %10s %11s | %10s %11s %7s | %10s %9s | %9s\n", "block KiB", "GB/s", "cpu ms/GB", "GB/s",
                "cpu ms/GB", "/memcpy", "GB/s", "/get", "GB/s");
    for (size_t size = 64 << 10; size <= 8 << 20; size *= 2) {
      std::vector<double> copy, copy_cpu, get, get_cpu, get_ratio, checked, check_ratio, one;
      for (int round = 0; round < kRounds; ++round) {
        const Rate memcpy_rate = bench.Memcpy(size);
        const Rate get_rate = bench.Gets(size, Mode::kSpread);
        const Rate checked_rate = bench.Gets(size, Mode::kSpreadWithChecksum);
        copy.push_back(memcpy_rate.gigabytes_per_second);
        copy_cpu.push_back(memcpy_rate.cpu_ms_per_gigabyte);
        get.push_back(get_rate.gigabytes_per_second);
        get_cpu.push_back(get_rate.cpu_ms_per_gigabyte);
        get_ratio.push_back(get.back() / copy.back());
        checked.push_back(checked_rate.gigabytes_per_second);
        check_ratio.push_back(checked.back() / get.back());
        one.push_back(bench.Gets(size, Mode::kOneBlock).gigabytes_per_second);
      }
      std::printf("%9zu | %10.2f %11.0f | %10.2f %11.0f %7.2f | %10.2f %9.2f | %9.2f\n", size >> 10, Median(copy),
                  Median(copy_cpu), Median(get), Median(get_cpu), Median(get_ratio), Median(checked),
                  Median(check_ratio), Median(one));
    }
    std::printf("(checksums %08x)\n", bench.checksum());
    return OkStatus();
  }
  return InvalidArgument("no transport '" + name + "'");
}

}  // namespace
}  // namespace millrace::transfer

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) words = {"ucx", "sysv,posix", "ucx", "tcp"};
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    const millrace::Status status = millrace::transfer::Run(words[i], words[i + 1]);
    if (!status.ok()) {
      std::fprintf(stderr, "transport_bench: %s: %s\n", words[i].c_str(), status.ToString().c_str());
      return 1;
    }
  }
  return 0;
}
