#include "common/store/rocksdb/rocksdb_tier.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "common/base/log.h"
#include "common/store/catalog.h"
#include "common/store/record.h"
#include "common/store/rocksdb/block_index.h"
#include "common/store/rocksdb/path_lock.h"
#include "common/store/rocksdb/segment_file.h"

namespace millrace::store {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSegmentsInCapacity = 16;
constexpr uint64_t kLargestSegment = 256ull << 20;
constexpr uint64_t kLeastCapacity = 1ull << 20;
constexpr uint64_t kIndexRoom = 16ull << 20;  // kept free for the index: its memtable, log, manifest
constexpr int64_t kAnyAge = std::numeric_limits<int64_t>::min();
constexpr const char* kSegmentSuffix = ".seg";

Status NoSpace(std::string message) { return {Code::kResourceExhausted, Reason::kNoSpace, std::move(message)}; }

Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? ErrnoStatus(error.value(), "make folder " + path) : OkStatus();
}

std::string SegmentName(uint64_t id) {
  char hex[17] = {};
  for (int i = 0; i < 16; ++i) hex[i] = "0123456789abcdef"[(id >> (60 - 4 * i)) & 15];
  return std::string(hex) + kSegmentSuffix;
}

std::optional<uint64_t> SegmentId(const std::string& name) {
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id, 16);
  if (error != std::errc() || end != name.data() + 16 || SegmentName(id) != name) return std::nullopt;
  return id;
}

CatalogOptions CatalogOptionsOf(const TierOptions& options) {
  const uint64_t segment = std::min(options.capacity_bytes / kSegmentsInCapacity, kLargestSegment);
  return {.capacity_bytes = options.capacity_bytes,
          .segment_bytes = segment / kRecordAlign * kRecordAlign,
          .retention = options.retention};
}

Status Check(const TierOptions& options) {
  if (options.path.empty()) return InvalidArgument("the store's path is empty").WithParam("path");
  if (options.capacity_bytes < kLeastCapacity) {
    return InvalidArgument("the store's capacity must be at least 1 MiB").WithParam("capacity");
  }
  if (!options.unix_seconds) return InvalidArgument("a tier needs a clock");
  return OkStatus();
}

class RocksdbTier final : public Tier {
 public:
  RocksdbTier(TierOptions options, std::unique_ptr<PathLock> path_lock)
      : options_(std::move(options)), path_lock_(std::move(path_lock)), catalog_(CatalogOptionsOf(options_)) {}
  ~RocksdbTier() override { static_cast<void>(Close()); }

  Status Recover();
  Status Trim();  // to a capacity that is smaller than it was

  std::vector<Status> Put(std::span<const TierPut> batch) override;
  StatusOr<uint32_t> Get(const kv::BlockKey& key, std::span<std::byte> into) override;
  uint32_t ContainsPrefix(std::span<const kv::BlockKey> keys) const override;
  TierStats Stats() const override;
  Status Close() override;

 private:
  using Files = std::map<uint64_t, std::shared_ptr<SegmentFile>>;
  // Items of a batch that will be written together.
  struct Group {
    std::vector<size_t> items;  // index in the batch
    std::vector<RecordToWrite> records;
    uint64_t bytes = 0;
  };

  // ---- opening
  Status OpenSegments(const IndexContent& content);
  void AdoptRows(std::vector<IndexRow> rows);
  Status ScanTail(uint64_t id, uint64_t indexed_bytes);
  void ChooseActive(const IndexContent& content);

  // ---- the index; write_mutex_ held
  Status OpenIndex(IndexContent& content);
  IndexChange Missing(const IndexContent& content) const;
  Status Commit(const IndexChange& change, bool sync);
  void CloseIndex(const Status& why);
  Status EnsureIndex(int64_t now);

  // ---- writing; write_mutex_ held
  std::optional<Status> SettledWithoutWriting(const TierPut& item, int64_t now);
  void Flush(Group& group, std::vector<Status>& statuses);
  Status Append(std::span<const RecordToWrite> records);
  Status MakeRoom(uint64_t bytes, int64_t now);
  Status CheckFloor(uint64_t bytes) const;
  Status Roll(int64_t now);
  Status Reclaim(const ReclaimPlan& plan, int64_t now);
  Status Move(const kv::BlockKey& key, int64_t now, std::vector<kv::BlockKey>& damaged);
  Status ReclaimExpired(int64_t now);
  void DropDamaged(const IndexRow& row, const Status& why);

  std::string SegmentPath(uint64_t id) const { return options_.path + "/segments/" + SegmentName(id); }
  std::shared_ptr<SegmentFile> File(uint64_t id) const;

  const TierOptions options_;
  const std::unique_ptr<PathLock> path_lock_;

  // Held over whatever changes files, index or catalog; taken before mutex_.
  std::mutex write_mutex_;
  std::unique_ptr<BlockIndex> index_;  // guarded by write_mutex_; null: it can't be written and nothing be put
  Status no_index_;                    // guarded by write_mutex_; why index_ is null
  int64_t reopen_s_ = 0;               // guarded by write_mutex_; when to try to open it again
  uint64_t next_segment_ = 1;          // guarded by write_mutex_

  mutable std::mutex mutex_;  // never held over a disk operation
  Catalog catalog_;           // guarded by mutex_; only Touch without write_mutex_
  Files files_;               // guarded by mutex_
  TierStats counts_;          // guarded by mutex_
  bool closed_ = false;       // guarded by mutex_
};

Status RocksdbTier::OpenIndex(IndexContent& content) {
  const std::string folder = options_.path + "/index";
  auto index = BlockIndex::Open(folder, content);
  if (!index.ok() && index.status().reason() != Reason::kNoSpace) {
    Log(LogLevel::kWarning, "store_index_rebuilt", {{"path", folder}, {"reason", index.status().message()}});
    std::error_code error;
    fs::remove_all(folder, error);
    if (error) return ErrnoStatus(error.value(), "remove the damaged index " + folder);
    content = {};
    index = BlockIndex::Open(folder, content);
  }
  if (index.ok()) {
    index_ = *std::move(index);
    return OkStatus();
  }
  content = {};
  if (index.status().reason() != Reason::kNoSpace) return std::move(index).status();
  CloseIndex(index.status());
  return OkStatus();
}

// What makes the index say what the catalog says.
IndexChange RocksdbTier::Missing(const IndexContent& content) const {
  std::lock_guard lock(mutex_);
  IndexChange change;
  std::map<kv::BlockKey, const IndexRow*> indexed;
  for (const auto& row : content.rows) {
    indexed.emplace(row.header.key, &row);
    if (catalog_.Find(row.header.key, kAnyAge) == nullptr) change.erase.push_back(row.header.key);
  }
  for (const auto& row : catalog_.Rows()) {
    const auto found = indexed.find(row.header.key);
    if (found == indexed.end() || *found->second != row) change.put.push_back(row);
  }
  for (const auto& [id, file] : files_) {
    change.marks.emplace_back(id, SegmentMark{.indexed_bytes = catalog_.segment_bytes(id)});
  }
  for (const auto& [id, mark] : content.marks) {
    if (!files_.contains(id)) change.forget_segments.push_back(id);
  }
  return change;
}

Status RocksdbTier::Commit(const IndexChange& change, bool sync) {
  if (index_ == nullptr) return no_index_;
  Status status = index_->Commit(change, sync);
  if (!status.ok()) CloseIndex(status);
  return status;
}

void RocksdbTier::CloseIndex(const Status& why) {
  index_ = nullptr;
  no_index_ = Status(why.code(), why.reason(),
                     "store " + options_.path + " is read-only until its index can be written (" + why.message() +
                         "): free space on that disk, or restart with a lower --capacity");
  reopen_s_ = options_.unix_seconds() + 1;
  std::lock_guard lock(mutex_);
  if (std::exchange(counts_.read_only, true)) return;
  Log(LogLevel::kError, "store_read_only", {{"path", options_.path}, {"error", no_index_.message()}});
}

Status RocksdbTier::EnsureIndex(int64_t now) {
  if (index_ != nullptr) return OkStatus();
  if (now < reopen_s_) return no_index_;
  reopen_s_ = now + 1;
  IndexContent content;
  MR_RETURN_IF_ERROR(OpenIndex(content));
  MR_RETURN_IF_ERROR(Commit(Missing(content), /*sync=*/true));
  std::lock_guard lock(mutex_);
  counts_.read_only = false;
  Log(LogLevel::kInfo, "store_writable", {{"path", options_.path}});
  return OkStatus();
}

Status RocksdbTier::OpenSegments(const IndexContent& content) {
  const std::string folder = options_.path + "/segments";
  std::set<uint64_t> ids;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto id = SegmentId(entry->path().filename().string())) ids.insert(*id);
  }
  if (error) return ErrnoStatus(error.value(), "list " + folder);
  for (const uint64_t id : ids) {
    const auto mark = content.marks.find(id);
    if (mark != content.marks.end() && mark->second.state == SegmentState::kDropped) {
      unlink(SegmentPath(id).c_str());
      continue;
    }
    MR_ASSIGN_OR_RETURN(std::shared_ptr<SegmentFile> file, SegmentFile::Open(SegmentPath(id)));
    MR_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
    catalog_.AddSegment(id, size);
    files_.emplace(id, std::move(file));
  }
  return OkStatus();
}

void RocksdbTier::AdoptRows(std::vector<IndexRow> rows) {
  std::sort(rows.begin(), rows.end(), [](const IndexRow& a, const IndexRow& b) {
    return std::pair(a.segment, a.offset) < std::pair(b.segment, b.offset);
  });
  for (const auto& row : rows) {
    if (files_.contains(row.segment) &&
        row.offset + RecordBytes(row.header.length) <= catalog_.segment_bytes(row.segment)) {
      catalog_.Insert(row);
    }
  }
}

Status RocksdbTier::ScanTail(uint64_t id, uint64_t indexed_bytes) {
  const auto& file = files_.at(id);
  const uint64_t size = catalog_.segment_bytes(id);
  const uint64_t from = std::min(indexed_bytes, size) / kRecordAlign * kRecordAlign;
  const int64_t now = options_.unix_seconds();
  MR_ASSIGN_OR_RETURN(const uint64_t end, file->Scan(from, [&](uint64_t offset, const RecordHeader& header) {
    const IndexRow row{.segment = id, .offset = offset, .header = header};
    const IndexRow* known = catalog_.Find(header.key, now);
    if (known != nullptr && std::pair(known->segment, known->offset) > std::pair(id, offset)) return;
    catalog_.Insert(row);
    ++counts_.recovered;
  }));
  if (size != end) MR_RETURN_IF_ERROR(file->Truncate(end));
  catalog_.SetSegmentBytes(id, end);
  return OkStatus();
}

void RocksdbTier::ChooseActive(const IndexContent& content) {
  if (!content.marks.empty()) next_segment_ = content.marks.rbegin()->first + 1;
  if (files_.empty()) return;
  const uint64_t last = files_.rbegin()->first;
  next_segment_ = std::max(next_segment_, last + 1);
  catalog_.Activate(last);
}

Status RocksdbTier::Recover() {
  std::lock_guard write_lock(write_mutex_);
  IndexContent content;
  MR_RETURN_IF_ERROR(OpenIndex(content));
  if (index_ == nullptr && !BlockIndex::Read(options_.path + "/index", content).ok()) content = {};
  {
    std::lock_guard lock(mutex_);
    MR_RETURN_IF_ERROR(OpenSegments(content));
    AdoptRows(content.rows);
    for (const auto& [id, file] : files_) {
      const auto mark = content.marks.find(id);
      MR_RETURN_IF_ERROR(ScanTail(id, mark == content.marks.end() ? 0 : mark->second.indexed_bytes));
    }
    ChooseActive(content);
  }
  const Status committed = Commit(Missing(content), /*sync=*/true);
  if (!committed.ok() && committed.reason() != Reason::kNoSpace) return committed;
  std::lock_guard lock(mutex_);
  Log(LogLevel::kInfo, "store_opened",
      {{"path", options_.path},
       {"blocks", catalog_.blocks()},
       {"segments", catalog_.segments()},
       {"bytes", catalog_.file_bytes()},
       {"recovered", counts_.recovered}});
  return OkStatus();
}

Status RocksdbTier::Trim() {
  std::lock_guard write_lock(write_mutex_);
  const int64_t now = options_.unix_seconds();
  while (true) {
    std::optional<ReclaimPlan> plan;
    {
      std::lock_guard lock(mutex_);
      if (!catalog_.HasRoom(0)) plan = catalog_.PlanReclaim(now);
    }
    if (!plan.has_value()) return OkStatus();
    const Status status = Reclaim(*plan, now);
    if (!status.ok() && index_ != nullptr) return status;
  }
}

std::vector<Status> RocksdbTier::Put(std::span<const TierPut> batch) {
  std::lock_guard write_lock(write_mutex_);
  const int64_t now = options_.unix_seconds();
  std::vector<Status> statuses(batch.size());
  std::map<kv::BlockKey, size_t> first;  // a key's first item in the batch
  Group group;
  for (size_t i = 0; i < batch.size(); ++i) {
    const TierPut& item = batch[i];
    if (!first.emplace(item.key, i).second) continue;
    if (auto settled = SettledWithoutWriting(item, now)) {
      statuses[i] = *std::move(settled);
      continue;
    }
    RecordToWrite record{.payload = item.bytes};
    const uint64_t bytes = RecordBytes(static_cast<uint32_t>(item.bytes.size()));
    const auto fits = [&] {
      std::lock_guard lock(mutex_);
      record.header = catalog_.Describe(item.key, item.retention, now);
      return catalog_.FitsActive(group.bytes + bytes) && catalog_.HasRoom(group.bytes + bytes);
    };
    if (!fits()) Flush(group, statuses);
    record.header.length = static_cast<uint32_t>(item.bytes.size());
    record.header.crc32c = item.crc32c;
    statuses[i] = MakeRoom(group.bytes + bytes, now);
    if (!statuses[i].ok()) continue;
    group.items.push_back(i);
    group.records.push_back(record);
    group.bytes += bytes;
  }
  Flush(group, statuses);
  for (size_t i = 0; i < batch.size(); ++i) statuses[i] = statuses[first.at(batch[i].key)];
  return statuses;
}

std::optional<Status> RocksdbTier::SettledWithoutWriting(const TierPut& item, int64_t now) {
  std::lock_guard lock(mutex_);
  if (closed_) return FailedPrecondition("the store is closed");
  if (catalog_.Find(item.key, now) != nullptr) return OkStatus();
  if (item.bytes.empty() || item.bytes.size() > kMaxPayloadBytes ||
      RecordBytes(static_cast<uint32_t>(item.bytes.size())) > options_.capacity_bytes / 4) {
    return InvalidArgument("a block of " + std::to_string(item.bytes.size()) + " bytes does not fit a store of " +
                           std::to_string(options_.capacity_bytes));
  }
  return std::nullopt;
}

void RocksdbTier::Flush(Group& group, std::vector<Status>& statuses) {
  if (group.items.empty()) return;
  const Status status = Append(group.records);
  for (const size_t item : group.items) statuses[item] = status;
  group = {};
}

Status RocksdbTier::Append(std::span<const RecordToWrite> records) {
  uint64_t id = 0, offset = 0;
  std::shared_ptr<SegmentFile> file;
  {
    std::lock_guard lock(mutex_);
    id = *catalog_.active();
    offset = catalog_.segment_bytes(id);
    file = files_.at(id);
  }
  IndexChange change;
  uint64_t end = offset;
  for (const auto& record : records) {
    change.put.push_back({.segment = id, .offset = end, .header = record.header});
    end += RecordBytes(record.header.length);
  }
  change.marks.emplace_back(id, SegmentMark{.indexed_bytes = end});
  Status status = file->WriteAt(offset, records);
  if (status.ok() && options_.fsync) status = file->Sync();
  if (status.ok()) status = Commit(change, options_.fsync);
  if (!status.ok()) {
    static_cast<void>(file->Truncate(offset));  // the next append writes at `offset` whether this worked or not
    return status;
  }
  std::lock_guard lock(mutex_);
  catalog_.SetSegmentBytes(id, end);
  for (const auto& row : change.put) catalog_.Insert(row);
  return OkStatus();
}

Status RocksdbTier::MakeRoom(uint64_t bytes, int64_t now) {
  Status floor = CheckFloor(bytes);
  if (!floor.ok()) {
    MR_RETURN_IF_ERROR(ReclaimExpired(now));
    MR_RETURN_IF_ERROR(CheckFloor(bytes));
  }
  MR_RETURN_IF_ERROR(EnsureIndex(now));
  while (true) {
    std::optional<ReclaimPlan> plan;
    {
      std::lock_guard lock(mutex_);
      if (catalog_.HasRoom(bytes)) {
        counts_.guarantee_full = false;
        break;
      }
      plan = catalog_.PlanReclaim(now);
      counts_.guarantee_full = !plan.has_value();
    }
    if (!plan.has_value()) {
      return NoSpace("store " + options_.path +
                     " is full of blocks within their retention guarantee: give it more --capacity "
                     "or a shorter --guarantee-hours");
    }
    MR_RETURN_IF_ERROR(Reclaim(*plan, now));
  }
  const bool fits = [&] {
    std::lock_guard lock(mutex_);
    return catalog_.FitsActive(bytes);
  }();
  return fits ? OkStatus() : Roll(now);
}

Status RocksdbTier::CheckFloor(uint64_t bytes) const {
  struct statvfs info {};
  if (statvfs(options_.path.c_str(), &info) != 0) return ErrnoStatus(errno, "statvfs " + options_.path);
  const uint64_t free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
  if (free_bytes >= std::max(options_.min_free_bytes, kIndexRoom) + bytes) return OkStatus();
  return NoSpace("the disk of " + options_.path + " has " + std::to_string(free_bytes) + " bytes free and keeps " +
                 std::to_string(std::max(options_.min_free_bytes, kIndexRoom)) +
                 " (--min-free): free some, lower --capacity, or put the store elsewhere");
}

Status RocksdbTier::Roll(int64_t now) {
  MR_RETURN_IF_ERROR(ReclaimExpired(now));
  const uint64_t id = next_segment_;
  MR_ASSIGN_OR_RETURN(std::shared_ptr<SegmentFile> file, SegmentFile::Create(SegmentPath(id)));
  ++next_segment_;
  if (options_.fsync) {
    const std::string folder = options_.path + "/segments";
    const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = fd >= 0 && fsync(fd) == 0;
    const int error = errno;
    if (fd >= 0) close(fd);
    if (!synced) return ErrnoStatus(error, "fsync " + folder);
  }
  std::lock_guard lock(mutex_);
  catalog_.AddSegment(id, 0);
  catalog_.Activate(id);
  files_.emplace(id, std::move(file));
  return OkStatus();
}

Status RocksdbTier::ReclaimExpired(int64_t now) {
  std::vector<ReclaimPlan> plans;
  {
    std::lock_guard lock(mutex_);
    plans = catalog_.PlanExpiry(now);
  }
  for (const auto& plan : plans) MR_RETURN_IF_ERROR(Reclaim(plan, now));
  return OkStatus();
}

Status RocksdbTier::Reclaim(const ReclaimPlan& plan, int64_t now) {
  IndexChange change;
  std::vector<kv::BlockKey> unmoved;
  for (const auto& key : plan.move) {
    if (index_ == nullptr || !Move(key, now, change.erase).ok()) unmoved.push_back(key);  // no room to keep it
  }
  const uint64_t damaged = change.erase.size();
  change.erase.insert(change.erase.end(), unmoved.begin(), unmoved.end());
  change.erase.insert(change.erase.end(), plan.evict.begin(), plan.evict.end());
  change.erase.insert(change.erase.end(), plan.expire.begin(), plan.expire.end());
  change.marks.emplace_back(plan.segment, SegmentMark{.state = SegmentState::kDropped});
  // An index that can't be written learns of it when it can.
  if (index_ != nullptr) MR_RETURN_IF_ERROR(Commit(change, options_.fsync));
  {
    std::lock_guard lock(mutex_);
    catalog_.RemoveSegment(plan.segment);
    files_.erase(plan.segment);
    counts_.evicted += unmoved.size() + plan.evict.size();
    counts_.expired += plan.expire.size();
    counts_.corrupt += damaged;
  }
  // What fails from here on is done again by the next open.
  if (unlink(SegmentPath(plan.segment).c_str()) != 0) return ErrnoStatus(errno, "remove " + SegmentPath(plan.segment));
  return index_ == nullptr ? OkStatus() : Commit({.forget_segments = {plan.segment}}, /*sync=*/false);
}

Status RocksdbTier::Move(const kv::BlockKey& key, int64_t now, std::vector<kv::BlockKey>& damaged) {
  RecordToWrite record;
  std::shared_ptr<SegmentFile> file;
  uint64_t offset = 0;
  bool fits = false;
  {
    std::lock_guard lock(mutex_);
    const IndexRow* row = catalog_.Find(key, now);
    if (row == nullptr) {
      damaged.push_back(key);
      return OkStatus();
    }
    record.header = row->header;
    offset = row->offset;
    file = files_.at(row->segment);
    fits = catalog_.FitsActive(RecordBytes(row->header.length));
  }
  std::vector<std::byte> payload(record.header.length);
  const Status read = file->ReadAt(offset, record.header, payload);
  if (!read.ok()) {
    Log(LogLevel::kWarning, "store_block_damaged", {{"key", key.ToHex()}, {"reason", read.message()}});
    damaged.push_back(key);
    return OkStatus();
  }
  record.payload = payload;
  if (!fits) MR_RETURN_IF_ERROR(Roll(now));
  return Append({&record, 1});
}

std::shared_ptr<SegmentFile> RocksdbTier::File(uint64_t id) const {
  const auto file = files_.find(id);
  return file == files_.end() ? nullptr : file->second;
}

StatusOr<uint32_t> RocksdbTier::Get(const kv::BlockKey& key, std::span<std::byte> into) {
  IndexRow row;
  std::shared_ptr<SegmentFile> file;
  {
    std::lock_guard lock(mutex_);
    const IndexRow* found = closed_ ? nullptr : catalog_.Find(key, options_.unix_seconds());
    if (found == nullptr) return NotFound("no block " + key.ToHex());
    row = *found;
    file = File(row.segment);
  }
  if (row.header.length != into.size()) {
    return InvalidArgument("block " + key.ToHex() + " has " + std::to_string(row.header.length) + " bytes, not " +
                           std::to_string(into.size()));
  }
  Status read = file->ReadAt(row.offset, row.header, into);
  if (!read.ok()) {
    DropDamaged(row, read);
    return read;
  }
  std::lock_guard lock(mutex_);
  catalog_.Touch(key);
  return row.header.crc32c;
}

void RocksdbTier::DropDamaged(const IndexRow& row, const Status& why) {
  std::lock_guard write_lock(write_mutex_);
  {
    std::lock_guard lock(mutex_);
    const IndexRow* now = closed_ ? nullptr : catalog_.Find(row.header.key, options_.unix_seconds());
    if (now == nullptr || now->segment != row.segment || now->offset != row.offset) return;
    catalog_.Erase(row.header.key);
    ++counts_.corrupt;
  }
  Log(LogLevel::kWarning, "store_block_damaged", {{"key", row.header.key.ToHex()}, {"reason", why.message()}});
  // If this fails the row comes back at the next open, and is found damaged again.
  static_cast<void>(Commit({.erase = {row.header.key}}, /*sync=*/false));
}

uint32_t RocksdbTier::ContainsPrefix(std::span<const kv::BlockKey> keys) const {
  std::lock_guard lock(mutex_);
  return closed_ ? 0 : catalog_.ContainsPrefix(keys, options_.unix_seconds());
}

TierStats RocksdbTier::Stats() const {
  struct statvfs info {};
  const bool known = statvfs(options_.path.c_str(), &info) == 0;
  std::lock_guard lock(mutex_);
  TierStats stats = counts_;
  stats.blocks = catalog_.blocks();
  stats.live_bytes = catalog_.live_bytes();
  stats.used_bytes = catalog_.file_bytes();
  stats.capacity_bytes = options_.capacity_bytes;
  stats.free_bytes = known ? uint64_t{info.f_bavail} * info.f_frsize : 0;
  return stats;
}

Status RocksdbTier::Close() {
  std::lock_guard write_lock(write_mutex_);
  Files files;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return OkStatus();
    closed_ = true;
    files.swap(files_);
  }
  Status status;
  for (const auto& [id, file] : files) {
    if (const Status synced = file->Sync(); !synced.ok()) status = synced;
  }
  if (index_ != nullptr) {
    if (const Status closed = index_->Close(); !closed.ok()) status = closed;
  }
  return status;
}

}  // namespace

StatusOr<std::unique_ptr<Tier>> OpenRocksdbTier(TierOptions options) {
  MR_RETURN_IF_ERROR(Check(options));
  MR_RETURN_IF_ERROR(MakeFolder(options.path + "/segments"));
  MR_ASSIGN_OR_RETURN(auto path_lock, PathLock::Acquire(options.path));
  auto tier = std::make_unique<RocksdbTier>(std::move(options), std::move(path_lock));
  MR_RETURN_IF_ERROR(tier->Recover());
  MR_RETURN_IF_ERROR(tier->Trim());
  return std::unique_ptr<Tier>(std::move(tier));
}

}  // namespace millrace::store
