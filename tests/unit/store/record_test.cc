#include "common/store/record.h"

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace millrace::store {
namespace {

RecordHeader SampleHeader() {
  RecordHeader header{
      .retention = RetentionClass::kAgent, .length = 1474560, .crc32c = 0xdeadbeef, .written_s = 1700000000};
  header.expires_s = header.written_s + 259200;
  for (size_t i = 0; i < header.key.bytes.size(); ++i) header.key.bytes[i] = static_cast<uint8_t>(i * 17);
  return header;
}

TEST(Record, HeaderComesBack) {
  const auto decoded = DecodeRecordHeader(EncodeRecordHeader(SampleHeader()));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, SampleHeader());
}

TEST(Record, AnyFlippedBitOfTheHeaderIsRefused) {
  const RecordHeaderBytes good = EncodeRecordHeader(SampleHeader());
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    RecordHeaderBytes bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(DecodeRecordHeader(bad).has_value()) << "bit " << bit;
  }
  EXPECT_FALSE(DecodeRecordHeader(RecordHeaderBytes{}).has_value());
}

TEST(Record, BytesAreFixed) {
  const RecordHeaderBytes bytes = EncodeRecordHeader(SampleHeader());
  EXPECT_EQ(bytes[0], std::byte{'M'});
  EXPECT_EQ(bytes[3], std::byte{'V'});
  EXPECT_EQ(bytes[4], std::byte{1});
  EXPECT_EQ(bytes[6], std::byte{1});   // class agent
  EXPECT_EQ(bytes[9], std::byte{17});  // key
  EXPECT_EQ(bytes[24], std::byte{0x00});
  EXPECT_EQ(bytes[25], std::byte{0x80});  // 1474560 = 0x168000
  EXPECT_EQ(bytes[26], std::byte{0x16});
  EXPECT_EQ(bytes[28], std::byte{0xef});
}

TEST(Record, SizeIsAligned) {
  EXPECT_EQ(RecordBytes(1), kRecordAlign);
  EXPECT_EQ(RecordBytes(kRecordAlign - kRecordHeaderBytes), kRecordAlign);
  EXPECT_EQ(RecordBytes(kRecordAlign - kRecordHeaderBytes + 1), 2 * kRecordAlign);
}

TEST(Record, IndexRowComesBack) {
  const IndexRow row{.segment = 1ull << 40, .offset = 4096ull << 30, .header = SampleHeader()};
  const auto decoded = DecodeIndexRow(row.header.key, EncodeIndexRow(row));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, row);
}

TEST(Record, IndexRowOfAnotherVersionOrLengthIsRefused) {
  const IndexRow row{.segment = 1, .offset = 0, .header = SampleHeader()};
  std::string bytes = EncodeIndexRow(row);
  EXPECT_FALSE(DecodeIndexRow(row.header.key, bytes.substr(1)).has_value());
  EXPECT_FALSE(DecodeIndexRow(row.header.key, "").has_value());
  bytes[0] = 2;
  EXPECT_FALSE(DecodeIndexRow(row.header.key, bytes).has_value());
}

}  // namespace
}  // namespace millrace::store
