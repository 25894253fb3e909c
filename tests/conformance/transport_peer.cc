#include "tests/conformance/transport_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "common/base/time.h"
#include "common/transfer/anonymous_memory.h"

extern char** environ;

namespace millrace::transfer {
namespace {

constexpr Duration kCallLimit = Seconds(20);

uint64_t PatternWord(uint64_t seed, uint64_t word) {
  uint64_t x = (word + 1) * 0x9e3779b97f4a7c15ull ^ (seed * 0xbf58476d1ce4e5b9ull);
  x ^= x >> 29;
  return x * 0x94d049bb133111ebull;
}

uint8_t PatternByte(uint64_t seed, uint64_t at) {
  return static_cast<uint8_t>(PatternWord(seed, at / 8) >> (8 * (at % 8)));
}

}  // namespace

void FillPattern(std::span<std::byte> bytes, uint64_t seed, uint64_t offset) {
  size_t i = 0;
  for (; i < bytes.size() && (offset + i) % 8 != 0; ++i) bytes[i] = std::byte{PatternByte(seed, offset + i)};
  for (; i + 8 <= bytes.size(); i += 8) {
    const uint64_t word = PatternWord(seed, (offset + i) / 8);
    std::memcpy(bytes.data() + i, &word, 8);
  }
  for (; i < bytes.size(); ++i) bytes[i] = std::byte{PatternByte(seed, offset + i)};
}

size_t PatternEnd(std::span<const std::byte> bytes, uint64_t seed, uint64_t offset) {
  size_t i = 0;
  const auto same = [&](size_t at) { return bytes[at] == std::byte{PatternByte(seed, offset + at)}; };
  for (; i < bytes.size() && (offset + i) % 8 != 0; ++i) {
    if (!same(i)) return i;
  }
  for (; i + 8 <= bytes.size(); i += 8) {
    const uint64_t word = PatternWord(seed, (offset + i) / 8);
    if (std::memcmp(bytes.data() + i, &word, 8) != 0) break;
  }
  for (; i < bytes.size(); ++i) {
    if (!same(i)) return i;
  }
  return bytes.size();
}

std::string ToHex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex.push_back(kDigits[static_cast<uint8_t>(c) >> 4]);
    hex.push_back(kDigits[static_cast<uint8_t>(c) & 15]);
  }
  return hex;
}

std::string FromHex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

LocalPeer::LocalPeer(const TransportDescriptor& kind, std::unique_ptr<Transport> transport)
    : kind_(kind), transport_(std::move(transport)) {}

LocalPeer::~LocalPeer() {
  for (auto& [index, held] : regions_) {
    held.region.reset();
    held.memory.reset();
  }
}

StatusOr<PeerRegion> LocalPeer::AddRegion(size_t size, uint64_t seed, bool allocated) {
  Held held;
  if (allocated) {
    MR_ASSIGN_OR_RETURN(held.memory, transport_->Allocate(size));
  } else {
    MR_ASSIGN_OR_RETURN(held.memory, MakeAnonymousMemory(size));
  }
  FillPattern(held.memory->bytes(), seed);
  MR_ASSIGN_OR_RETURN(held.region, transport_->Register(held.memory->bytes()));
  PeerRegion region{next_++, held.region->descriptor()};
  regions_[region.index] = std::move(held);
  return region;
}

Status LocalPeer::DropRegion(uint32_t index) {
  const auto it = regions_.find(index);
  if (it == regions_.end()) return NotFound("no such region");
  it->second.region.reset();
  it->second.memory.reset();
  regions_.erase(it);
  return OkStatus();
}

void LocalPeer::Signal(PeerSignal signal) {
  if (kind_.signal_peer != nullptr) static_cast<void>(kind_.signal_peer(address(), signal));
}

pid_t LocalPeer::pid() const { return getpid(); }

StatusOr<std::unique_ptr<ProcessPeer>> ProcessPeer::Spawn(const TransportDescriptor& kind,
                                                          const TransportOptions& options, bool own_ipc) {
  int to[2];
  int from[2];
  if (pipe2(to, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
  if (pipe2(from, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string program = folder.parent_path() / "tests" / "transport_peer";
  std::string name(kind.name);
  std::string lanes = options.lanes;
  std::string devices = options.devices;
  char* const arguments[] = {const_cast<char*>(program.c_str()),
                             name.data(),
                             lanes.data(),
                             devices.data(),
                             const_cast<char*>(own_ipc ? "own-ipc" : "shared-ipc"),
                             nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  if (failed != 0) return ErrnoStatus(failed, "spawning " + program);
  std::unique_ptr<ProcessPeer> peer(new ProcessPeer(pid, to[1], from[0]));
  MR_ASSIGN_OR_RETURN(const std::string address, peer->Call("address"));
  peer->address_ = FromHex(address);
  return peer;
}

ProcessPeer::~ProcessPeer() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(in_);
  close(out_);
}

StatusOr<std::string> ProcessPeer::Call(const std::string& line) {
  const std::string request = line + "\n";
  if (write(in_, request.data(), request.size()) != static_cast<ssize_t>(request.size())) {
    return ErrnoStatus(errno, "writing to the peer");
  }
  const TimePoint deadline = SystemClock().Now() + kCallLimit;
  size_t end;
  while ((end = received_.find('\n')) == std::string::npos) {
    const TimePoint now = SystemClock().Now();
    pollfd wait{.fd = out_, .events = POLLIN, .revents = 0};
    if (now >= deadline || poll(&wait, 1, static_cast<int>(ToMilliseconds(deadline - now)) + 1) <= 0) {
      return Status(Code::kDeadlineExceeded, "no answer from the peer to " + line.substr(0, 20));
    }
    char buffer[4096];
    const ssize_t count = read(out_, buffer, sizeof buffer);
    if (count <= 0) return Unavailable("the peer's process ended");
    received_.append(buffer, static_cast<size_t>(count));
  }
  const std::string answer = received_.substr(0, end);
  received_.erase(0, end + 1);
  if (answer.starts_with("ok ")) return answer.substr(3);
  int code = 0;
  std::istringstream(answer) >> code;
  return Status(static_cast<Code>(code), answer);
}

StatusOr<PeerRegion> ProcessPeer::AddRegion(size_t size, uint64_t seed, bool allocated) {
  MR_ASSIGN_OR_RETURN(const std::string answer, Call("region " + std::to_string(size) + " " + std::to_string(seed) +
                                                     " " + std::to_string(allocated)));
  std::istringstream words(answer);
  PeerRegion region;
  std::string hex;
  words >> region.index >> hex;
  region.descriptor = FromHex(hex);
  return region;
}

Status ProcessPeer::DropRegion(uint32_t index) { return Call("drop " + std::to_string(index)).status(); }

Status ProcessPeer::StartReading(const std::string& address, const std::string& descriptor, size_t size) {
  return Call("read " + ToHex(address) + " " + ToHex(descriptor) + " " + std::to_string(size)).status();
}

StatusOr<uint64_t> ProcessPeer::StopReading() {
  MR_ASSIGN_OR_RETURN(const std::string answer, Call("unread"));
  return std::stoull(answer);
}

void ProcessPeer::Signal(PeerSignal signal) {
  switch (signal) {
    case PeerSignal::kStop: {
      kill(pid_, SIGSTOP);
      int status = 0;
      waitpid(pid_, &status, WUNTRACED);  // until it really stopped
      return;
    }
    case PeerSignal::kResume:
      kill(pid_, SIGCONT);
      return;
    case PeerSignal::kKill: {
      kill(pid_, SIGKILL);
      siginfo_t info;
      waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
      return;
    }
  }
}

StatusOr<std::unique_ptr<TestPeer>> MakePeer(const TransportDescriptor& kind, const TransportOptions& options) {
  if (kind.signal_peer == nullptr) {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<ProcessPeer> peer, ProcessPeer::Spawn(kind, options, false));
    return std::unique_ptr<TestPeer>(std::move(peer));
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, kind.make(options));
  return std::unique_ptr<TestPeer>(std::make_unique<LocalPeer>(kind, std::move(transport)));
}

}  // namespace millrace::transfer
