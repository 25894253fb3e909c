// One suite for every transport of the table, in every variant, plain and behind the fault decorator without faults.
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/base/time.h"
#include "common/transfer/anonymous_memory.h"
#include "common/transfer/blob.h"
#include "common/transfer/fault/fault.h"
#include "tests/conformance/transport_peer.h"

namespace millrace::transfer {
namespace {

constexpr Duration kLimit = Seconds(20);        // for what must happen
constexpr Duration kLinkEndLimit = Seconds(1);  // of ~Link, by contract

struct Kind {
  const TransportDescriptor* descriptor;
  TransportVariant variant;
  bool wrapped;
};

std::vector<Kind> AllKinds() {
  std::vector<Kind> kinds;
  for (const TransportDescriptor* descriptor : All()) {
    for (const TransportVariant& variant : descriptor->variants) {
      for (const bool wrapped : {false, true}) kinds.push_back({descriptor, variant, wrapped});
    }
  }
  return kinds;
}

std::string KindName(const testing::TestParamInfo<Kind>& info) {
  return std::string(info.param.descriptor->name) + "_" + std::string(info.param.variant.name) +
         (info.param.wrapped ? "_faultless" : "");
}

// Collects completions; each get may complete once only.
class Completions {
 public:
  Completion Add() {
    std::lock_guard lock(mutex_);
    const size_t index = statuses_.size();
    statuses_.emplace_back();
    return [this, index](const Status& status) {
      std::lock_guard relock(mutex_);
      EXPECT_FALSE(statuses_[index].has_value()) << "completed twice";
      statuses_[index] = status;
      ++done_;
      changed_.notify_all();
    };
  }
  // False when not all arrived in time.
  bool Wait(Duration limit = kLimit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return done_ == statuses_.size(); });
  }
  std::vector<Code> Codes() {
    std::lock_guard lock(mutex_);
    std::vector<Code> codes;
    for (const auto& status : statuses_) {
      if (status) codes.push_back(status->code());
    }
    return codes;
  }
  Status At(size_t index) {
    std::lock_guard lock(mutex_);
    return statuses_[index].value_or(Status(Code::kDeadlineExceeded, "did not complete"));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Status>> statuses_;
  size_t done_ = 0;
};

Status GetAndWait(Link& link, RemoteRegion region, uint64_t offset, std::span<std::byte> into) {
  // Outlives this call when the get never completes.
  auto completions = std::make_shared<Completions>();
  link.Get(region, offset, into, [completions, done = completions->Add()](const Status& status) { done(status); });
  completions->Wait();
  return completions->At(0);
}

size_t OpenFiles(pid_t pid) {
  size_t count = 0;
  DIR* const folder = opendir(("/proc/" + std::to_string(pid) + "/fd").c_str());
  if (folder == nullptr) return 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

size_t ResidentBytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(getpagesize());
}

class TransportSuite : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    transport_ = MakeOne();
    peer_ = MakeOnePeer();
  }

  TransportOptions Options() const { return {.lanes = std::string(GetParam().variant.lanes)}; }

  std::unique_ptr<Transport> MakeOne(uint32_t max_pending = 256) {
    TransportOptions options = Options();
    options.max_pending = max_pending;
    auto made = MakeTransport(GetParam().descriptor->name, options);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    if (!made.ok()) return nullptr;
    if (!GetParam().wrapped) return *std::move(made);
    return fault::MakeFaultyTransport(*std::move(made), {});
  }
  std::unique_ptr<TestPeer> MakeOnePeer() {
    auto peer = MakePeer(*GetParam().descriptor, Options());
    EXPECT_TRUE(peer.ok()) << peer.status().ToString();
    return peer.ok() ? *std::move(peer) : nullptr;
  }
  std::unique_ptr<Link> ConnectTo(const TestPeer& peer) {
    auto link = transport_->Connect(peer.address());
    EXPECT_TRUE(link.ok()) << link.status().ToString();
    return link.ok() ? *std::move(link) : nullptr;
  }
  PeerRegion Region(size_t size, uint64_t seed) {
    auto region = peer_->AddRegion(size, seed, true);
    EXPECT_TRUE(region.ok()) << region.status().ToString();
    return region.ok() ? *std::move(region) : PeerRegion{};
  }
  RemoteRegion Import(Link& link, const PeerRegion& region) {
    auto imported = link.Import(region.descriptor);
    EXPECT_TRUE(imported.ok()) << imported.status().ToString();
    return imported.ok() ? *imported : RemoteRegion{~0u};
  }
  Duration DestroyAndTime(std::unique_ptr<Link> link) {
    const TimePoint start = SystemClock().Now();
    link.reset();
    return SystemClock().Now() - start;
  }

  std::unique_ptr<Transport> transport_;
  std::unique_ptr<TestPeer> peer_;
};

// A get is outstanding at a peer that was stopped; it is declared dead, its pages are used again, it runs again.
TEST_P(TransportSuite, AStalledPeerCannotWriteIntoReusedPages) {
  constexpr size_t kGet = 4 << 20;
  constexpr size_t kGets = 16;
  const PeerRegion region = Region(kGet * kGets, 1);
  std::vector<std::byte> pages(kGet * kGets);
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  const RemoteRegion remote = Import(*link, region);
  ASSERT_TRUE(GetAndWait(*link, remote, 0, std::span(pages).first(4096)).ok());

  Completions completions;
  for (size_t i = 0; i < kGets / 2; ++i) {  // some of them half way when it stops
    link->Get(remote, i * kGet, std::span(pages).subspan(i * kGet, kGet), completions.Add());
  }
  peer_->Signal(PeerSignal::kStop);
  for (size_t i = kGets / 2; i < kGets; ++i) {
    link->Get(remote, i * kGet, std::span(pages).subspan(i * kGet, kGet), completions.Add());
  }
  EXPECT_LT(DestroyAndTime(std::move(link)), kLinkEndLimit);
  ASSERT_EQ(completions.Codes().size(), kGets) << "every get completes before the link is gone";
  EXPECT_THAT(completions.Codes(), testing::Each(testing::AnyOf(Code::kOk, Code::kCancelled)));

  FillPattern(pages, 99);
  peer_->Signal(PeerSignal::kResume);
  // The peer runs again, as its answers over a second link show.
  std::unique_ptr<Link> second = ConnectTo(*peer_);
  std::vector<std::byte> again(kGet);
  const RemoteRegion remote_again = Import(*second, region);
  for (size_t i = 0; i < kGets; ++i) {
    ASSERT_TRUE(GetAndWait(*second, remote_again, i * kGet, again).ok());
    EXPECT_EQ(PatternEnd(again, 1, i * kGet), again.size());
  }
  EXPECT_EQ(PatternEnd(pages, 99), pages.size()) << "the resumed peer changed reused pages";
}

TEST_P(TransportSuite, ReadsTheBytesAskedFor) {
  const PeerRegion region = Region(1 << 20, 3);
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  const RemoteRegion remote = Import(*link, region);
  std::vector<std::byte> bytes(1 << 20);
  for (const auto& [offset, size] : std::vector<std::pair<size_t, size_t>>{
           {0, 1}, {0, 0}, {1 << 20, 0}, {1, 7}, {4095, 2}, {12345, 70001}, {(1 << 20) - 1, 1}, {0, 1 << 20}}) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
    ASSERT_TRUE(GetAndWait(*link, remote, offset, std::span(bytes).first(size)).ok()) << offset << " " << size;
    EXPECT_EQ(PatternEnd(std::span(bytes).first(size), 3, offset), size);
    EXPECT_TRUE(std::all_of(bytes.begin() + static_cast<ptrdiff_t>(size), bytes.end(),
                            [](std::byte b) { return b == std::byte{0xee}; }));
  }
}

TEST_P(TransportSuite, MemoryFromElsewhereIsReadOrRefusedAtOnce) {
  auto region = peer_->AddRegion(1 << 20, 4, false);
  if (!region.ok()) {
    EXPECT_EQ(region.status().code(), Code::kFailedPrecondition) << region.status().ToString();
    return;
  }
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  std::vector<std::byte> bytes(1 << 20);
  ASSERT_TRUE(GetAndWait(*link, Import(*link, *region), 0, bytes).ok());
  EXPECT_EQ(PatternEnd(bytes, 4), bytes.size());
}

TEST_P(TransportSuite, APartOfAllocatedMemoryCanBeARegion) {
  auto memory = transport_->Allocate(64 << 10);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  const std::span<std::byte> bytes = (*memory)->bytes();
  ASSERT_EQ(bytes.size(), 64u << 10);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % 4096, 0u);
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
  FillPattern(bytes, 5);
  auto region = transport_->Register(bytes.subspan(10000, 20000));
  ASSERT_TRUE(region.ok()) << region.status().ToString();
  auto reader = MakeOne();
  auto link = reader->Connect(transport_->address());
  ASSERT_TRUE(link.ok());
  auto remote = (*link)->Import((*region)->descriptor());
  ASSERT_TRUE(remote.ok()) << remote.status().ToString();
  std::vector<std::byte> read(20000);
  ASSERT_TRUE(GetAndWait(**link, *remote, 0, read).ok());
  EXPECT_EQ(PatternEnd(read, 5, 10000), read.size());
  EXPECT_EQ(GetAndWait(**link, *remote, 1, read).code(), Code::kOutOfRange);
}

// Once such a request filled the machine's memory before it failed, and other processes were ended for it.
TEST_P(TransportSuite, MoreMemoryThanThereIsIsRefusedWithoutTouchingAny) {
  const size_t before = ResidentBytes(getpid());
  for (const size_t size : {AvailableMemory() * 2, uint64_t{1} << 45}) {
    const TimePoint start = SystemClock().Now();
    EXPECT_EQ(transport_->Allocate(size).status().code(), Code::kResourceExhausted);
    EXPECT_LT(SystemClock().Now() - start, Seconds(1));
  }
  EXPECT_LT(ResidentBytes(getpid()), before + (64 << 20));
}

// Backed as it is used.
TEST_P(TransportSuite, LargeMemoryCostsNothingUntilItIsUsed) {
  const size_t before = ResidentBytes(getpid());
  auto memory = transport_->Allocate(std::min<uint64_t>(AvailableMemory() / 4, 4ull << 30));
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  EXPECT_LT(ResidentBytes(getpid()), before + (64 << 20));
  (*memory)->bytes().back() = std::byte{1};
}

TEST_P(TransportSuite, RangesOutsideTheRegionReadNothing) {
  const PeerRegion region = Region(10000, 6);
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  const RemoteRegion remote = Import(*link, region);
  std::vector<std::byte> bytes(20000, std::byte{0xee});
  const std::span<std::byte> all(bytes);
  EXPECT_EQ(GetAndWait(*link, remote, 0, all.first(10001)).code(), Code::kOutOfRange);
  EXPECT_EQ(GetAndWait(*link, remote, 9999, all.first(2)).code(), Code::kOutOfRange);
  EXPECT_EQ(GetAndWait(*link, remote, 10001, all.first(0)).code(), Code::kOutOfRange);
  EXPECT_EQ(GetAndWait(*link, remote, ~uint64_t{0}, all.first(2)).code(), Code::kOutOfRange);
  EXPECT_EQ(GetAndWait(*link, RemoteRegion{77}, 0, all.first(1)).code(), Code::kInvalidArgument);
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0xee}; }));
}

TEST_P(TransportSuite, DamagedAddressesAndDescriptorsAreRefused) {
  const PeerRegion region = Region(4096, 7);
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  Rng rng(2024);
  const auto refuse = [&](const std::string& bytes) {
    EXPECT_EQ(transport_->Connect(bytes).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(link->Import(bytes).status().code(), Code::kInvalidArgument);
  };
  for (int i = 0; i < 2000; ++i) {
    std::string random(rng.Below(300), '\0');
    for (char& c : random) c = static_cast<char>(rng.Next32());
    refuse(random);
    for (std::string valid : {peer_->address(), region.descriptor}) {
      for (uint64_t flips = 1 + rng.Below(3); flips > 0; --flips) {
        valid[rng.Below(valid.size())] ^= static_cast<char>(1 + rng.Below(255));
      }
      if (valid != peer_->address() && valid != region.descriptor) refuse(valid);
    }
    refuse(peer_->address().substr(0, rng.Below(peer_->address().size())));
    refuse(region.descriptor.substr(0, rng.Below(region.descriptor.size())));
  }
  EXPECT_EQ(transport_->Connect(BlobWriter().Bytes("other").Finish(BlobKind::kAddress)).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(link->Import(BlobWriter().Bytes("other").Finish(BlobKind::kRegion)).status().code(),
            Code::kInvalidArgument);
}

TEST_P(TransportSuite, ADescriptorOfAnotherPeerIsRefused) {
  const PeerRegion region = Region(4096, 8);
  std::unique_ptr<TestPeer> other = MakeOnePeer();
  std::unique_ptr<Link> link = ConnectTo(*other);
  EXPECT_EQ(link->Import(region.descriptor).status().code(), Code::kInvalidArgument);
}

TEST_P(TransportSuite, MoreGetsThanMaxPendingAreRefused) {
  transport_ = MakeOne(8);
  const PeerRegion region = Region(1 << 16, 9);
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  ASSERT_EQ(link->max_pending(), 8u);
  const RemoteRegion remote = Import(*link, region);
  std::vector<std::byte> bytes(1 << 16);
  // While this completion holds the transport's thread nothing else completes.
  std::promise<void> held;
  std::promise<void> release;
  link->Get(remote, 0, std::span(bytes).first(1), [&](const Status&) {
    held.set_value();
    release.get_future().wait_for(kLimit);
  });
  ASSERT_EQ(held.get_future().wait_for(kLimit), std::future_status::ready);
  Completions completions;
  for (size_t i = 0; i < 12; ++i) link->Get(remote, 0, std::span(bytes).subspan(i, 1), completions.Add());
  release.set_value();
  ASSERT_TRUE(completions.Wait());
  const std::vector<Code> codes = completions.Codes();
  EXPECT_EQ(std::count(codes.begin(), codes.end(), Code::kOk), 8);
  EXPECT_EQ(std::count(codes.begin(), codes.end(), Code::kResourceExhausted), 4);
  EXPECT_TRUE(GetAndWait(*link, remote, 0, bytes).ok()) << "room again afterwards";
}

TEST_P(TransportSuite, GetsOfManyThreadsAtOnce) {
  const PeerRegion region = Region(8 << 20, 10);
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  const RemoteRegion remote = Import(*link, region);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(t);
      std::vector<std::byte> bytes(300 << 10);
      for (int i = 0; i < 60; ++i) {
        const size_t size = 1 + rng.Below(bytes.size());
        const size_t offset = rng.Below((8 << 20) - size);
        const std::span<std::byte> into = std::span(bytes).first(size);
        const Status status = GetAndWait(*link, remote, offset, into);
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(PatternEnd(into, 10, offset), size);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(TransportSuite, AGigabyteArrivesWithItsChecksum) {
  constexpr size_t kSize = 128 << 20;
  constexpr size_t kGet = 8 << 20;
  const PeerRegion region = Region(kSize, 11);
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  const RemoteRegion remote = Import(*link, region);
  std::vector<std::byte> expected(kSize);
  FillPattern(expected, 11);
  const uint32_t crc = Crc32c(expected.data(), expected.size());
  std::vector<std::byte> bytes(kSize);
  for (int round = 0; round < 8; ++round) {
    std::memset(bytes.data(), 0, bytes.size());
    Completions completions;
    for (size_t offset = 0; offset < kSize; offset += kGet) {
      link->Get(remote, offset, std::span(bytes).subspan(offset, kGet), completions.Add());
    }
    ASSERT_TRUE(completions.Wait(Seconds(60)));
    ASSERT_THAT(completions.Codes(), testing::Each(Code::kOk));
    ASSERT_EQ(Crc32c(bytes.data(), bytes.size()), crc);
  }
}

TEST_P(TransportSuite, APeerKilledInTheMiddleOfGets) {
  constexpr size_t kSize = 64 << 20;
  const PeerRegion region = Region(kSize, 12);
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  const RemoteRegion remote = Import(*link, region);
  std::vector<std::byte> bytes(kSize);
  Completions completions;
  for (size_t i = 0; i < 16; ++i) {
    link->Get(remote, i * (4 << 20), std::span(bytes).subspan(i * (4 << 20), 4 << 20), completions.Add());
  }
  peer_->Signal(PeerSignal::kKill);
  completions.Wait(Seconds(3));  // some transports notice, others leave it to the caller's deadline
  EXPECT_LT(DestroyAndTime(std::move(link)), kLinkEndLimit);
  ASSERT_EQ(completions.Codes().size(), 16u);
  EXPECT_THAT(completions.Codes(), testing::Each(testing::AnyOf(Code::kOk, Code::kCancelled, Code::kUnavailable)));
  for (size_t i = 0; i < 16; ++i) {
    if (!completions.At(i).ok()) continue;
    EXPECT_EQ(PatternEnd(std::span(bytes).subspan(i * (4 << 20), 4 << 20), 12, i * (4 << 20)), 4u << 20);
  }
  // This process is as good as before.
  peer_ = MakeOnePeer();
  const PeerRegion fresh = Region(4096, 13);
  link = ConnectTo(*peer_);
  EXPECT_TRUE(GetAndWait(*link, Import(*link, fresh), 0, std::span(bytes).first(4096)).ok());
  EXPECT_EQ(PatternEnd(std::span(bytes).first(4096), 13), 4096u);
}

TEST_P(TransportSuite, ARestartedPeerIsANewPeer) {
  const PeerRegion old = Region(1 << 20, 14);
  const std::string old_address = peer_->address();
  peer_->Signal(PeerSignal::kKill);
  peer_.reset();
  peer_ = MakeOnePeer();
  const PeerRegion fresh = Region(1 << 20, 15);
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  EXPECT_EQ(link->Import(old.descriptor).status().code(), Code::kInvalidArgument);

  auto stale = transport_->Connect(old_address);
  ASSERT_TRUE(stale.ok());
  EXPECT_EQ((*stale)->Import(fresh.descriptor).status().code(), Code::kInvalidArgument);
  if (auto remote = (*stale)->Import(old.descriptor); remote.ok()) {
    std::vector<std::byte> bytes(4096, std::byte{0xee});
    Completions completions;
    (*stale)->Get(*remote, 0, bytes, completions.Add());
    completions.Wait(Seconds(3));
    stale->reset();
    EXPECT_THAT(completions.Codes(), testing::ElementsAre(testing::AnyOf(Code::kCancelled, Code::kUnavailable)));
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0xee}; }));
  }
}

TEST_P(TransportSuite, ARegionDestroyedWhileItIsReadLeavesTheOwnerRunning) {
  constexpr size_t kSize = 32 << 20;
  for (const bool allocated : {true, false}) {
    auto region = peer_->AddRegion(kSize, 16, allocated);
    if (!region.ok()) continue;
    std::unique_ptr<Link> link = ConnectTo(*peer_);
    const RemoteRegion remote = Import(*link, *region);
    std::vector<std::byte> bytes(kSize);
    Completions completions;
    for (size_t i = 0; i < 64; ++i) {
      link->Get(remote, i * (kSize / 64), std::span(bytes).subspan(i * (kSize / 64), kSize / 64), completions.Add());
    }
    ASSERT_TRUE(peer_->DropRegion(region->index).ok());
    for (size_t i = 0; i < 8; ++i)
      link->Get(remote, i * 4096, std::span(bytes).subspan(i * 4096, 4096), completions.Add());
    EXPECT_TRUE(completions.Wait());
    EXPECT_THAT(completions.Codes(), testing::Each(testing::AnyOf(Code::kOk, Code::kNotFound, Code::kUnavailable)));

    const PeerRegion fresh = Region(4096, 17);
    std::unique_ptr<Link> second = ConnectTo(*peer_);
    ASSERT_TRUE(GetAndWait(*second, Import(*second, fresh), 0, std::span(bytes).first(4096)).ok());
    EXPECT_EQ(PatternEnd(std::span(bytes).first(4096), 17), 4096u);
  }
}

// A reader is stopped while it reads; its owner withdraws and unmaps the memory and goes on.
TEST_P(TransportSuite, AStoppedReaderDoesNotHoldTheOwnersMemory) {
  auto* reader = dynamic_cast<ProcessPeer*>(peer_.get());
  if (reader == nullptr) return;  // within one process a reader cannot be stopped alone
  constexpr size_t kSize = 64 << 20;
  for (const bool allocated : {true, false}) {
    LocalPeer owner(*GetParam().descriptor, MakeOne());
    auto region = owner.AddRegion(kSize, 18, allocated);
    if (!region.ok()) continue;
    ASSERT_TRUE(reader->StartReading(owner.address(), region->descriptor, kSize).ok());
    reader->Signal(PeerSignal::kStop);
    const TimePoint start = SystemClock().Now();
    ASSERT_TRUE(owner.DropRegion(region->index).ok());
    EXPECT_LT(SystemClock().Now() - start, kLinkEndLimit);
    reader->Signal(PeerSignal::kResume);
    const auto completed = reader->StopReading();
    EXPECT_TRUE(completed.ok()) << completed.status().ToString();

    auto fresh = owner.AddRegion(kSize, 19, allocated);
    ASSERT_TRUE(fresh.ok());
    ASSERT_TRUE(reader->StartReading(owner.address(), fresh->descriptor, kSize).ok());
    EXPECT_TRUE(reader->StopReading().ok());
  }
}

// Readers are killed or stopped at moments spread over connecting and reading.
TEST_P(TransportSuite, ReadersThatVanishAtAnyMomentLeaveTheOwnerRunning) {
  if (dynamic_cast<ProcessPeer*>(peer_.get()) == nullptr) return;  // within one process a reader cannot vanish alone
  constexpr size_t kSize = 8 << 20;
  LocalPeer owner(*GetParam().descriptor, MakeOne());
  auto region = owner.AddRegion(kSize, 24, true);
  ASSERT_TRUE(region.ok());
  Rng rng(5);
  std::vector<std::byte> busy(2 << 20);
  std::vector<std::unique_ptr<TestPeer>> stopped;
  for (int i = 0; i < 30; ++i) {
    std::unique_ptr<TestPeer> peer = MakeOnePeer();
    ASSERT_TRUE(peer != nullptr);
    auto* reader = dynamic_cast<ProcessPeer*>(peer.get());
    ASSERT_TRUE(reader->StartReading(owner.address(), region->descriptor, kSize).ok());
    FillPattern(std::span(busy).first(rng.Below(busy.size())), 0);  // lets a varying time pass
    if (i % 2 == 0) {
      reader->Signal(PeerSignal::kKill);
    } else {
      reader->Signal(PeerSignal::kStop);
      stopped.push_back(std::move(peer));
    }
  }
  stopped.clear();
  auto* reader = dynamic_cast<ProcessPeer*>(peer_.get());
  ASSERT_TRUE(reader->StartReading(owner.address(), region->descriptor, kSize).ok());
  EXPECT_TRUE(reader->StopReading().ok());
}

TEST_P(TransportSuite, OwnersThatVanishAtAnyMomentLeaveTheReaderRunning) {
  constexpr size_t kSize = 8 << 20;
  Rng rng(6);
  std::vector<std::byte> busy(2 << 20);
  std::vector<std::byte> bytes(kSize);
  for (int i = 0; i < 30; ++i) {
    peer_ = MakeOnePeer();
    const PeerRegion region = Region(kSize, 25);
    std::unique_ptr<Link> link = ConnectTo(*peer_);
    const RemoteRegion remote = Import(*link, region);
    Completions completions;
    for (size_t part = 0; part < 4; ++part) {
      link->Get(remote, part * (kSize / 4), std::span(bytes).subspan(part * (kSize / 4), kSize / 4), completions.Add());
    }
    FillPattern(std::span(busy).first(rng.Below(busy.size())), 0);  // lets a varying time pass
    peer_->Signal(i % 2 == 0 ? PeerSignal::kKill : PeerSignal::kStop);
    EXPECT_LT(DestroyAndTime(std::move(link)), kLinkEndLimit);
    EXPECT_EQ(completions.Codes().size(), 4u);
    EXPECT_THAT(completions.Codes(), testing::Each(testing::AnyOf(Code::kOk, Code::kCancelled, Code::kUnavailable)));
  }
}

TEST_P(TransportSuite, DestroyingALinkCompletesWhatIsPending) {
  constexpr size_t kSize = 64 << 20;
  const PeerRegion region = Region(kSize, 20);
  std::vector<std::byte> bytes(kSize);
  for (int round = 0; round < 5; ++round) {
    std::unique_ptr<Link> link = ConnectTo(*peer_);
    const RemoteRegion remote = Import(*link, region);
    Completions completions;
    for (size_t i = 0; i < 128; ++i) {
      link->Get(remote, i * (kSize / 128), std::span(bytes).subspan(i * (kSize / 128), kSize / 128), completions.Add());
    }
    EXPECT_LT(DestroyAndTime(std::move(link)), kLinkEndLimit);
    EXPECT_EQ(completions.Codes().size(), 128u);
    EXPECT_THAT(completions.Codes(), testing::Each(testing::AnyOf(Code::kOk, Code::kCancelled)));
  }
}

TEST_P(TransportSuite, LinksLeaveNothingBehind) {
  const PeerRegion region = Region(1 << 20, 21);
  std::vector<std::byte> bytes(1 << 20);
  const auto use_links = [&](int count) {
    for (int i = 0; i < count; ++i) {
      std::unique_ptr<Link> link = ConnectTo(*peer_);
      ASSERT_TRUE(GetAndWait(*link, Import(*link, region), 0, bytes).ok());
    }
  };
  use_links(10);
  const size_t files = OpenFiles(getpid());
  const size_t peer_files = OpenFiles(peer_->pid());
  const size_t resident = ResidentBytes(getpid());
  const size_t peer_resident = ResidentBytes(peer_->pid());
  use_links(60);
  EXPECT_LE(OpenFiles(getpid()), files + 4);
  // The peer learns of a link's end a moment later; reading over another link gives it that moment.
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  const RemoteRegion remote = Import(*link, region);
  const TimePoint deadline = SystemClock().Now() + Seconds(5);
  while (OpenFiles(peer_->pid()) > peer_files + 4 && SystemClock().Now() < deadline) {
    ASSERT_TRUE(GetAndWait(*link, remote, 0, bytes).ok());
  }
  EXPECT_LE(OpenFiles(peer_->pid()), peer_files + 4);
  EXPECT_LE(ResidentBytes(getpid()), resident + (16 << 20));
  EXPECT_LE(ResidentBytes(peer_->pid()), peer_resident + (16 << 20));
}

TEST_P(TransportSuite, TellsWhatWasNegotiated) {
  const PeerRegion region = Region(4096, 22);
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  std::vector<std::byte> bytes(4096);
  ASSERT_TRUE(GetAndWait(*link, Import(*link, region), 0, bytes).ok());
  const LinkInfo info = link->info();
  EXPECT_EQ(info.transport, GetParam().descriptor->name);
  EXPECT_FALSE(info.lanes.empty());
  EXPECT_TRUE(info.same_host);
  EXPECT_THAT(info.error_mode, testing::AnyOf("none", "peer"));
  for (const std::string& lane : info.lanes) {
    EXPECT_TRUE(lane.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos) << lane;
    if (!GetParam().variant.lanes.empty()) {
      EXPECT_NE(GetParam().variant.lanes.find(lane), std::string_view::npos) << lane;
    }
  }
}

// As two pods of one machine: what can't be mapped is read over the network.
TEST_P(TransportSuite, APeerInAnotherIpcNamespaceIsReadOverTheNetwork) {
  if (GetParam().descriptor->signal_peer != nullptr) return;  // within one process there is one namespace
  auto apart = ProcessPeer::Spawn(*GetParam().descriptor, Options(), true);
  if (!apart.ok()) return;  // this user may not make namespaces
  peer_ = *std::move(apart);
  auto region = peer_->AddRegion(1 << 20, 26, true);
  ASSERT_TRUE(region.ok()) << region.status().ToString();
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  auto remote = link->Import(region->descriptor);
  if (!remote.ok()) {  // no network lane in this variant
    EXPECT_EQ(remote.status().code(), Code::kUnavailable) << remote.status().ToString();
    return;
  }
  std::vector<std::byte> bytes(1 << 20);
  ASSERT_TRUE(GetAndWait(*link, *remote, 0, bytes).ok());
  EXPECT_EQ(PatternEnd(bytes, 26), bytes.size());
  EXPECT_EQ(link->info().error_mode, "peer");
}

TEST_P(TransportSuite, AnIdleTransportUsesNoCpu) {
  const PeerRegion region = Region(4096, 23);
  std::unique_ptr<Link> link = ConnectTo(*peer_);
  std::vector<std::byte> bytes(4096);
  ASSERT_TRUE(GetAndWait(*link, Import(*link, region), 0, bytes).ok());
  const auto cpu = [] {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return Seconds(used.tv_sec) + Duration(used.tv_nsec);
  };
  const Duration before = cpu();
  std::promise<void> never;
  never.get_future().wait_for(Milliseconds(300));  // the time over which CPU is measured
  EXPECT_LT(cpu() - before, Milliseconds(15));
}

INSTANTIATE_TEST_SUITE_P(All, TransportSuite, testing::ValuesIn(AllKinds()), KindName);

}  // namespace
}  // namespace millrace::transfer
