#include "common/store/rocksdb/block_index.h"

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>

#include "common/base/log.h"

namespace millrace::store {
namespace {

constexpr char kRowPrefix = 'B';
constexpr char kSegmentPrefix = 'S';

std::string RowKey(const kv::BlockKey& key) { return kRowPrefix + std::string(key.AsBytes()); }

void AppendBigEndian(std::string& bytes, uint64_t value) {
  for (int shift = 56; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
}

uint64_t ReadBigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = (value << 8) | static_cast<uint8_t>(c);
  return value;
}

std::string SegmentKey(uint64_t id) {
  std::string key(1, kSegmentPrefix);
  AppendBigEndian(key, id);
  return key;
}

std::string EncodeMark(const SegmentMark& mark) {
  std::string bytes(1, static_cast<char>(mark.state));
  AppendBigEndian(bytes, mark.indexed_bytes);
  return bytes;
}

Status FromRocksdb(const rocksdb::Status& status, const std::string& what) {
  if (status.ok()) return OkStatus();
  const std::string message = "RocksDB " + what + ": " + status.ToString();
  const auto ends_with = [&](int error) { return message.ends_with(std::generic_category().message(error)); };
  if (status.IsNoSpace() || ends_with(EDQUOT) || ends_with(EFBIG)) {
    return {Code::kResourceExhausted, Reason::kNoSpace, message};
  }
  return status.IsCorruption() ? DataLoss(message) : Internal(message);
}

// RocksDB's warnings. A log file of its own would abort the process when the disk is full and assertions are on, as
// they are in Debian's package.
class ProcessLogger final : public rocksdb::Logger {
 public:
  ProcessLogger() : Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}
  using Logger::Logv;
  void LogHeader(const char*, va_list) override {}
  void Logv(const char* format, va_list arguments) override {
    if (!LogEnabled(LogLevel::kDebug)) return;
    char text[1024];
    std::vsnprintf(text, sizeof text, format, arguments);
    Log(LogLevel::kDebug, "rocksdb", {{"text", text}});
  }
};

rocksdb::Options DatabaseOptions() {
  rocksdb::Options options;
  options.info_log = std::make_shared<ProcessLogger>();
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 4 << 20;
  options.max_total_wal_size = 16 << 20;
  options.max_background_jobs = 2;
  options.max_open_files = 64;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

Status ReadEntry(std::string_view key, std::string_view value, IndexContent& content) {
  if (key.size() == 17 && key[0] == kRowPrefix) {
    kv::BlockKey block;
    std::memcpy(block.bytes.data(), key.data() + 1, block.bytes.size());
    const auto row = DecodeIndexRow(block, value);
    if (row.has_value()) {
      content.rows.push_back(*row);
      return OkStatus();
    }
  } else if (key.size() == 9 && key[0] == kSegmentPrefix && value.size() == 9) {
    SegmentMark mark;
    mark.state = value[0] == 0 ? SegmentState::kKept : SegmentState::kDropped;
    mark.indexed_bytes = ReadBigEndian(value.substr(1));
    content.marks.emplace(ReadBigEndian(key.substr(1)), mark);
    return OkStatus();
  }
  return DataLoss("the index holds an entry of an unknown kind");
}

Status ReadAll(rocksdb::DB& db, IndexContent& content) {
  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  read.fill_cache = false;
  const std::unique_ptr<rocksdb::Iterator> entry(db.NewIterator(read));
  for (entry->SeekToFirst(); entry->Valid(); entry->Next()) {
    MR_RETURN_IF_ERROR(ReadEntry(entry->key().ToStringView(), entry->value().ToStringView(), content));
  }
  return FromRocksdb(entry->status(), "read " + db.GetName());
}

}  // namespace

struct BlockIndex::State {
  std::unique_ptr<rocksdb::DB> db;
};

BlockIndex::BlockIndex(std::unique_ptr<State> state) : state_(std::move(state)) {}

BlockIndex::~BlockIndex() = default;

StatusOr<std::unique_ptr<BlockIndex>> BlockIndex::Open(const std::string& folder, IndexContent& content) {
  rocksdb::DB* db = nullptr;
  MR_RETURN_IF_ERROR(FromRocksdb(rocksdb::DB::Open(DatabaseOptions(), folder, &db), "open " + folder));
  auto state = std::make_unique<State>();
  state->db.reset(db);
  MR_RETURN_IF_ERROR(ReadAll(*db, content));
  return std::unique_ptr<BlockIndex>(new BlockIndex(std::move(state)));
}

Status BlockIndex::Read(const std::string& folder, IndexContent& content) {
  rocksdb::DB* db = nullptr;
  MR_RETURN_IF_ERROR(FromRocksdb(rocksdb::DB::OpenForReadOnly(DatabaseOptions(), folder, &db), "read " + folder));
  const std::unique_ptr<rocksdb::DB> owned(db);
  return ReadAll(*db, content);
}

Status BlockIndex::Commit(const IndexChange& change, bool sync) {
  if (state_->db == nullptr) return FailedPrecondition("the index is closed");
  rocksdb::WriteBatch batch;
  rocksdb::Status status;
  const auto note = [&status](const rocksdb::Status& one) {
    if (!one.ok()) status = one;
  };
  for (const auto& key : change.erase) note(batch.Delete(RowKey(key)));
  for (const auto& row : change.put) note(batch.Put(RowKey(row.header.key), EncodeIndexRow(row)));
  for (const auto& [id, mark] : change.marks) note(batch.Put(SegmentKey(id), EncodeMark(mark)));
  for (const uint64_t id : change.forget_segments) note(batch.Delete(SegmentKey(id)));
  if (!status.ok()) return FromRocksdb(status, "batch");
  rocksdb::WriteOptions options;
  options.sync = sync;
  return FromRocksdb(state_->db->Write(options, &batch), "write");
}

Status BlockIndex::Close() {
  if (state_->db == nullptr) return OkStatus();
  const rocksdb::Status synced = state_->db->SyncWAL();
  const rocksdb::Status closed = state_->db->Close();
  state_->db.reset();
  MR_RETURN_IF_ERROR(FromRocksdb(synced, "sync"));
  return FromRocksdb(closed, "close");
}

}  // namespace millrace::store
