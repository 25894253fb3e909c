// What the disk tier does when its files are not as it left them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>

#include "common/store/record.h"
#include "common/store/rocksdb/rocksdb_tier.h"
#include "tests/conformance/tier_fixture.h"

namespace millrace::store {
namespace {

namespace fs = std::filesystem;

class RocksdbTierTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.path = folder_.path();
    options_.capacity_bytes = 8 << 20;
    options_.unix_seconds = clock_.Reader();
    Open();
  }
  void Open() {
    tier_ = nullptr;
    auto tier = OpenRocksdbTier(options_);
    ASSERT_TRUE(tier.ok()) << tier.status().ToString();
    tier_ = *std::move(tier);
  }
  void PutBlocks(uint64_t from, uint64_t to) {
    for (uint64_t n = from; n < to; ++n) ASSERT_TRUE(PutBlock(*tier_, TestBlock(n)).ok());
  }
  void ExpectBlocks(uint64_t from, uint64_t to) {
    for (uint64_t n = from; n < to; ++n) {
      const Status status = CheckBlock(*tier_, TestBlock(n));
      EXPECT_TRUE(status.ok()) << n << ": " << status.ToString();
    }
  }
  std::vector<fs::path> Segments() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder_.path() + "/segments")) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  static void Overwrite(const fs::path& path, uint64_t at, const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file << bytes;
  }

  TemporaryFolder folder_;
  TestClock clock_;
  TierOptions options_;
  std::unique_ptr<Tier> tier_;
};

constexpr uint64_t kRecord = RecordBytes(10000);

TEST_F(RocksdbTierTest, ReopenedStoreHasEverything) {
  PutBlocks(0, 100);
  Open();
  ExpectBlocks(0, 100);
  EXPECT_EQ(tier_->Stats().blocks, 100u);
  EXPECT_EQ(tier_->Stats().recovered, 0u);
  EXPECT_GT(Segments().size(), 1u);
}

TEST_F(RocksdbTierTest, SecondProcessOnTheSameFolderIsRefused) {
  const auto second = OpenRocksdbTier(options_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(second.status().message(), testing::HasSubstr("in use by process " + std::to_string(getpid())));
  tier_ = nullptr;
  EXPECT_TRUE(OpenRocksdbTier(options_).ok());
}

TEST_F(RocksdbTierTest, LostIndexIsBuiltAgainFromTheSegments) {
  PutBlocks(0, 100);
  tier_ = nullptr;
  fs::remove_all(folder_.path() + "/index");
  Open();
  ExpectBlocks(0, 100);
  EXPECT_EQ(tier_->Stats().recovered, 100u);
  Open();
  EXPECT_EQ(tier_->Stats().recovered, 0u);
  ExpectBlocks(0, 100);
}

TEST_F(RocksdbTierTest, CorruptIndexIsBuiltAgainNotACrash) {
  PutBlocks(0, 50);
  for (const char* damaged : {"MANIFEST", "CURRENT", ".log", ".sst"}) {
    tier_ = nullptr;
    bool found = false;
    for (const auto& entry : fs::directory_iterator(folder_.path() + "/index")) {
      if (entry.path().filename().string().find(damaged) == std::string::npos) continue;
      if (entry.file_size() == 0) continue;
      Overwrite(entry.path(), 0, std::string(entry.file_size(), '\x5a'));
      found = true;
    }
    Open();
    ExpectBlocks(0, 50);
    EXPECT_TRUE(found || std::string(damaged) == ".sst") << damaged;
  }
}

TEST_F(RocksdbTierTest, IndexThatIsBehindCatchesUp) {
  PutBlocks(0, 10);
  tier_ = nullptr;
  fs::copy(folder_.path() + "/index", folder_.path() + "/old", fs::copy_options::recursive);
  Open();
  PutBlocks(10, 20);
  tier_ = nullptr;
  fs::remove_all(folder_.path() + "/index");
  fs::rename(folder_.path() + "/old", folder_.path() + "/index");
  Open();
  EXPECT_EQ(tier_->Stats().recovered, 10u);
  ExpectBlocks(0, 20);
}

TEST_F(RocksdbTierTest, TornTailIsCutAtTheLastIntactRecord) {
  PutBlocks(0, 3);
  tier_ = nullptr;
  const auto segments = Segments();
  ASSERT_EQ(segments.size(), 1u);
  for (const uint64_t torn : {kRecord - 1, kRecord - 8000, uint64_t{64}, uint64_t{10}}) {
    // The fourth record reached the disk in part and the index not at all.
    const TestBlock fourth(3);
    RecordHeader header{.key = fourth.key, .length = 10000, .crc32c = fourth.crc32c, .written_s = *clock_.now};
    header.expires_s = *clock_.now + 1000000;
    const auto encoded = EncodeRecordHeader(header);
    std::string record(reinterpret_cast<const char*>(encoded.data()), encoded.size());
    record.append(reinterpret_cast<const char*>(fourth.bytes.data()), fourth.bytes.size());
    record.resize(torn);
    fs::resize_file(segments[0], 3 * kRecord);
    Overwrite(segments[0], 3 * kRecord, record);
    Open();
    ExpectBlocks(0, 3);
    const bool whole = torn >= kRecordHeaderBytes + 10000;  // only padding is missing
    EXPECT_EQ(CheckBlock(*tier_, fourth).ok(), whole) << torn;
    EXPECT_EQ(fs::file_size(segments[0]), (whole ? 4 : 3) * kRecord);
    tier_ = nullptr;
    if (whole) fs::remove_all(folder_.path() + "/index");
  }
}

TEST_F(RocksdbTierTest, DamagedPayloadIsAMissAndCountedAndTheRestStays) {
  PutBlocks(0, 10);
  Overwrite(Segments()[0], 4 * kRecord + kRecordHeaderBytes + 5000, "x!");
  EXPECT_EQ(CheckBlock(*tier_, TestBlock(4)).reason(), Reason::kKvCorrupt);
  EXPECT_EQ(tier_->Stats().corrupt, 1u);
  EXPECT_EQ(tier_->Stats().blocks, 9u);
  ExpectBlocks(0, 4);
  ExpectBlocks(5, 10);
  Open();
  EXPECT_EQ(tier_->Stats().blocks, 9u);
  PutBlocks(4, 5);
  ExpectBlocks(0, 10);
}

TEST_F(RocksdbTierTest, DamagedHeaderCostsOneBlockAlsoWhenTheIndexIsLost) {
  PutBlocks(0, 10);
  tier_ = nullptr;
  Overwrite(Segments()[0], 4 * kRecord + 20, "damage");
  fs::remove_all(folder_.path() + "/index");
  Open();
  EXPECT_EQ(tier_->Stats().blocks, 9u);
  ExpectBlocks(0, 4);
  ExpectBlocks(5, 10);
}

TEST_F(RocksdbTierTest, IndexThatPointsToAnotherBlockIsNoticed) {
  PutBlocks(0, 2);
  tier_ = nullptr;
  const auto segment = Segments()[0];
  std::ifstream in(segment, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(in)), {});
  Overwrite(segment, 0, content.substr(kRecord, kRecord));  // block 1 where block 0 was
  Open();
  EXPECT_EQ(CheckBlock(*tier_, TestBlock(0)).reason(), Reason::kKvCorrupt);
  ExpectBlocks(1, 2);
}

TEST_F(RocksdbTierTest, MissingSegmentCostsItsBlocksOnly) {
  PutBlocks(0, 200);
  tier_ = nullptr;
  fs::remove(Segments()[1]);
  Open();
  uint64_t there = 0;
  for (uint64_t n = 0; n < 200; ++n) {
    const Status status = CheckBlock(*tier_, TestBlock(n));
    EXPECT_TRUE(status.ok() || status.code() == Code::kNotFound);
    there += status.ok();
  }
  EXPECT_GT(there, 100u);
  EXPECT_LT(there, 200u);
}

// While it lives no file can grow beyond `bytes`, as if the disk were full.
class FullDisk {
 public:
  explicit FullDisk(uint64_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit small = old_;
    small.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  rlimit old_{};
};

TEST_F(RocksdbTierTest, FullDiskRefusesThePutAndNothingIsLost) {
  PutBlocks(0, 20);
  Status status;
  {
    const FullDisk full(20 * kRecord + 5000);  // the next record is written in part
    status = PutBlock(*tier_, TestBlock(20));
  }
  EXPECT_EQ(status.reason(), Reason::kNoSpace) << status.ToString();
  EXPECT_EQ(CheckBlock(*tier_, TestBlock(20)).code(), Code::kNotFound);
  ExpectBlocks(0, 20);
  PutBlocks(20, 30);
  ExpectBlocks(0, 30);
  Open();
  ExpectBlocks(0, 30);
}

TEST_F(RocksdbTierTest, StoreOpenedOnAFullDiskReadsAndRefusesPutsAndDoesNotAbort) {
  PutBlocks(0, 20);
  {
    const FullDisk full(0);
    Open();
    EXPECT_TRUE(tier_->Stats().read_only);
    ExpectBlocks(0, 20);
    const Status status = PutBlock(*tier_, TestBlock(20));
    EXPECT_EQ(status.reason(), Reason::kNoSpace);
    EXPECT_THAT(status.message(), testing::AllOf(testing::HasSubstr(folder_.path()), testing::HasSubstr("free space"),
                                                 testing::HasSubstr("--capacity")));
    ++*clock_.now;
    EXPECT_EQ(PutBlock(*tier_, TestBlock(20)).reason(), Reason::kNoSpace);
    Open();
    EXPECT_TRUE(tier_->Stats().read_only);
    ExpectBlocks(0, 20);
  }
  ++*clock_.now;
  PutBlocks(20, 30);
  EXPECT_FALSE(tier_->Stats().read_only);
  Open();
  EXPECT_EQ(tier_->Stats().recovered, 0u);
  ExpectBlocks(0, 30);
}

TEST_F(RocksdbTierTest, FirstStartOnAFullDiskWaitsForRoom) {
  tier_ = nullptr;
  fs::remove_all(folder_.path() + "/index");
  {
    const FullDisk full(0);
    Open();
    EXPECT_EQ(PutBlock(*tier_, TestBlock(0)).reason(), Reason::kNoSpace);
  }
  ++*clock_.now;
  PutBlocks(0, 10);
  Open();
  ExpectBlocks(0, 10);
}

TEST_F(RocksdbTierTest, DiskThatIsFullForTheIndexOnlyMakesTheStoreReadOnlyUntilThereIsRoom) {
  uint64_t next = 0;
  while (Segments().size() < 10) PutBlocks(next, next + 1), ++next;
  {
    const FullDisk full(2 * kRecord);  // fits the new segment; the index's log is longer
    EXPECT_EQ(PutBlock(*tier_, TestBlock(next)).reason(), Reason::kNoSpace);
    EXPECT_TRUE(tier_->Stats().read_only);
    EXPECT_EQ(CheckBlock(*tier_, TestBlock(next)).code(), Code::kNotFound);
    ExpectBlocks(0, next);
  }
  ++*clock_.now;
  PutBlocks(next, next + 10);
  EXPECT_FALSE(tier_->Stats().read_only);
  Open();
  EXPECT_EQ(tier_->Stats().recovered, 0u);
  ExpectBlocks(0, next + 10);
}

TEST_F(RocksdbTierTest, LowerCapacityMakesRoomOnAFullDisk) {
  options_.retention.guaranteed_seconds = 0;
  PutBlocks(0, 500);
  options_.capacity_bytes = 2 << 20;
  uint64_t blocks = 0;
  {
    const FullDisk full(0);
    Open();
    EXPECT_LE(tier_->Stats().used_bytes, options_.capacity_bytes);
    blocks = tier_->Stats().blocks;
    EXPECT_GT(blocks, 50u);
  }
  ++*clock_.now;
  PutBlocks(499, 500);
  Open();
  EXPECT_EQ(tier_->Stats().blocks, blocks);
  EXPECT_EQ(tier_->Stats().recovered, 0u);
  ExpectBlocks(480, 500);
}

TEST_F(RocksdbTierTest, HotBlocksSurviveTheReclaimOfTheirSegment) {
  options_.retention.guaranteed_seconds = 0;
  Open();
  PutBlocks(0, 10);
  for (uint64_t n = 10; n < 2000; ++n) {
    PutBlocks(n, n + 1);
    if (n % 50 == 0) ExpectBlocks(3, 4);
  }
  ExpectBlocks(3, 4);
  EXPECT_EQ(CheckBlock(*tier_, TestBlock(5)).code(), Code::kNotFound);
  uint64_t bytes = 0;
  for (const auto& path : Segments()) bytes += fs::file_size(path);
  EXPECT_LE(bytes, options_.capacity_bytes);
  EXPECT_EQ(bytes, tier_->Stats().used_bytes);
  const uint64_t blocks = tier_->Stats().blocks;
  Open();
  EXPECT_EQ(tier_->Stats().blocks, blocks);
  ExpectBlocks(3, 4);
}

TEST_F(RocksdbTierTest, SmallerCapacityIsMetAtOpen) {
  options_.retention.guaranteed_seconds = 0;
  PutBlocks(0, 500);
  options_.capacity_bytes = 2 << 20;
  Open();
  EXPECT_LE(tier_->Stats().used_bytes, options_.capacity_bytes);
  EXPECT_GT(tier_->Stats().blocks, 50u);
}

TEST_F(RocksdbTierTest, BadOptionsAreNamed) {
  options_.capacity_bytes = 1000;
  EXPECT_EQ(OpenRocksdbTier(options_).status().param(), "capacity");
  options_.path = "";
  EXPECT_EQ(OpenRocksdbTier(options_).status().param(), "path");
}

}  // namespace
}  // namespace millrace::store
