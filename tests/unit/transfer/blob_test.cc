#include "common/transfer/blob.h"

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace millrace::transfer {
namespace {

std::string Sample() {
  return BlobWriter().U8(7).U64(1ull << 40).Bytes("hello").Id(TransportId{1, 2, 3}).Finish(BlobKind::kRegion);
}

TEST(Blob, ReadsWhatWasWritten) {
  const std::string blob = Sample();
  auto reader = BlobReader::Open(BlobKind::kRegion, blob);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  EXPECT_EQ(reader->U8(), 7);
  EXPECT_EQ(reader->U64(), 1ull << 40);
  EXPECT_EQ(reader->Bytes(), "hello");
  EXPECT_FALSE(reader->complete());
  EXPECT_EQ(reader->Id(), (TransportId{1, 2, 3}));
  EXPECT_TRUE(reader->complete());
}

TEST(Blob, ReadingPastTheEndIsEmptyAndIncomplete) {
  const std::string blob = BlobWriter().U8(1).Finish(BlobKind::kAddress);
  auto reader = BlobReader::Open(BlobKind::kAddress, blob);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->U64(), 0u);
  EXPECT_EQ(reader->Bytes(), "");
  EXPECT_EQ(reader->Id(), TransportId{});
  EXPECT_FALSE(reader->complete());
}

TEST(Blob, EveryChangedByteIsRefused) {
  const std::string blob = Sample();
  for (size_t i = 0; i < blob.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = blob;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_EQ(BlobReader::Open(BlobKind::kRegion, damaged).status().code(), Code::kInvalidArgument) << i;
    }
  }
}

TEST(Blob, EveryOtherLengthIsRefused) {
  const std::string blob = Sample();
  for (size_t size = 0; size < blob.size(); ++size) {
    EXPECT_FALSE(BlobReader::Open(BlobKind::kRegion, blob.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(BlobReader::Open(BlobKind::kRegion, blob + "x").ok());
}

TEST(Blob, AnotherKindIsRefused) { EXPECT_FALSE(BlobReader::Open(BlobKind::kAddress, Sample()).ok()); }

TEST(Blob, IdsDiffer) { EXPECT_NE(NewTransportId(), NewTransportId()); }

}  // namespace
}  // namespace millrace::transfer
