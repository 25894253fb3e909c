#include "common/model/gguf.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/model/gguf_header.h"

namespace millrace::model {
namespace {

struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;
  int64_t modified_s = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

FileIdentity IdentityOf(const struct stat& s) {
  return {.device = s.st_dev,
          .inode = s.st_ino,
          .bytes = static_cast<uint64_t>(s.st_size),
          .modified_s = s.st_mtim.tv_sec,
          .modified_ns = s.st_mtim.tv_nsec};
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Fills `out` from `offset`.
Status ReadFully(int fd, uint64_t offset, std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n == 0) {
      return FailedPrecondition("it became shorter while in use: no bytes at offset " + std::to_string(offset + done) +
                                "; restart with an intact file");
    } else if (errno != EINTR) {
      const std::string what = ErrnoStatus(errno, "reading at offset " + std::to_string(offset + done)).message();
      return DataLoss(what);
    }
  }
  return OkStatus();
}

class OpenGgufFile final : public GgufFile {
 public:
  OpenGgufFile(std::string path, FileDescriptor fd, FileIdentity identity, GgufHeader header)
      : path_(std::move(path)), fd_(std::move(fd)), identity_(identity), header_(std::move(header)) {
    for (size_t i = 0; i < header_.tensors.size(); ++i) by_name_.emplace(header_.tensors[i].name, i);
  }

  const std::string& path() const override { return path_; }
  uint64_t file_bytes() const override { return identity_.bytes; }
  const std::map<std::string, MetadataValue>& metadata() const override { return header_.metadata; }
  const std::vector<Tensor>& tensors() const override { return header_.tensors; }

  const Tensor* Find(std::string_view name) const override {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &header_.tensors[it->second];
  }

  Status ReadRows(const Tensor& tensor, uint64_t first_row, uint64_t row_count,
                  std::span<std::byte> out) const override {
    const Tensor* own = Find(tensor.name);
    if (own == nullptr || own->offset != tensor.offset || own->rows != tensor.rows ||
        own->row_bytes() != tensor.row_bytes()) {
      return InvalidArgument(path_ + ": tensor '" + tensor.name + "' is not one of this file");
    }
    if (first_row > tensor.rows || row_count > tensor.rows - first_row) {
      return InvalidArgument(path_ + ": rows " + std::to_string(first_row) + " + " + std::to_string(row_count) +
                             " of tensor '" + tensor.name + "', which has " + std::to_string(tensor.rows));
    }
    if (out.size() != row_count * tensor.row_bytes()) {
      return InvalidArgument(path_ + ": a buffer of " + std::to_string(out.size()) + " bytes for " +
                             std::to_string(row_count * tensor.row_bytes()) + " bytes of tensor '" + tensor.name + "'");
    }
    const Status read = ReadFully(fd_.get(), tensor.offset + first_row * tensor.row_bytes(), out);
    return read.ok() ? read : read.Annotate(path_ + ": tensor '" + tensor.name + "'");
  }

  StatusOr<uint64_t> Uint(std::string_view key) const override {
    MR_ASSIGN_OR_RETURN(const MetadataValue* value, Value(key));
    if (const auto* u = std::get_if<uint64_t>(value)) return *u;
    if (const auto* i = std::get_if<int64_t>(value); i != nullptr && *i >= 0) return static_cast<uint64_t>(*i);
    return WrongType(key, "an unsigned integer", *value);
  }

  StatusOr<double> Float(std::string_view key) const override {
    MR_ASSIGN_OR_RETURN(const MetadataValue* value, Value(key));
    if (const auto* d = std::get_if<double>(value)) return *d;
    return WrongType(key, "a float", *value);
  }

  StatusOr<std::string> String(std::string_view key) const override {
    MR_ASSIGN_OR_RETURN(const MetadataValue* value, Value(key));
    if (const auto* s = std::get_if<std::string>(value)) return *s;
    return WrongType(key, "a string", *value);
  }

  Status CheckUnchanged() const override {
    struct stat now {};
    if (::stat(path_.c_str(), &now) != 0) {
      return FailedPrecondition(ErrnoStatus(errno, "model file " + path_ + " went away").message());
    }
    const FileIdentity identity = IdentityOf(now);
    if (identity == identity_) return OkStatus();
    std::string what = "was rewritten";
    if (identity.inode != identity_.inode || identity.device != identity_.device) {
      what = "was replaced by another file";
    } else if (identity.bytes != identity_.bytes) {
      what =
          "changed size from " + std::to_string(identity_.bytes) + " to " + std::to_string(identity.bytes) + " bytes";
    }
    return FailedPrecondition("model file " + path_ + " " + what + " since it was opened; restart to use the new one");
  }

 private:
  StatusOr<const MetadataValue*> Value(std::string_view key) const {
    const auto it = header_.metadata.find(std::string(key));
    if (it == header_.metadata.end()) return NotFound(path_ + ": metadata key '" + std::string(key) + "' is missing");
    return &it->second;
  }

  Status WrongType(std::string_view key, std::string_view wanted, const MetadataValue& found) const {
    static constexpr std::string_view kNames[] = {
        "an unsigned integer",  "a negative integer", "a float",          "a bool", "a string", "an array of strings",
        "an array of integers", "an array of floats", "an array of bools"};
    std::string name(kNames[found.index()]);
    if (const auto* i = std::get_if<int64_t>(&found); i != nullptr && *i >= 0) name = "a signed integer";
    return InvalidArgument(path_ + ": metadata key '" + std::string(key) + "' must be " + std::string(wanted) +
                           ", it is " + name);
  }

  const std::string path_;
  const FileDescriptor fd_;
  const FileIdentity identity_;
  const GgufHeader header_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace

StatusOr<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& path) {
  // Non-blocking: opening a FIFO would otherwise wait for a writer.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return NotFound("model file " + path + " does not exist");
    return ErrnoStatus(errno, "opening model file " + path);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "reading the size of " + path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path + " is not a regular file; name a GGUF file");
  const FileIdentity identity = IdentityOf(info);

  const auto read = [&fd](uint64_t offset, std::span<std::byte> out) { return ReadFully(fd.get(), offset, out); };
  auto header = ParseGgufHeader(identity.bytes, read);
  if (!header.ok()) return header.status().Annotate(path);
  return std::shared_ptr<const GgufFile>(
      std::make_shared<OpenGgufFile>(path, std::move(fd), identity, std::move(header).value()));
}

}  // namespace millrace::model
