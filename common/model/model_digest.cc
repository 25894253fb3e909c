#include "common/model/model_digest.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <vector>

#include "common/base/log.h"
#include "common/kv/sha256.h"
#include "common/model/cache_dir.h"

namespace millrace::model {
namespace {

constexpr uint64_t kReadBytes = uint64_t{4} << 20;
constexpr uint64_t kReportBytes = uint64_t{4} << 30;  // between lines of progress
constexpr size_t kDigestChars = 64;

// What must be unchanged for a remembered digest to hold; one line.
std::string Identity(const std::string& path, const struct stat& info) {
  std::array<char, PATH_MAX> absolute{};
  const char* real = realpath(path.c_str(), absolute.data());
  return std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_sec) + "." +
         std::to_string(info.st_mtim.tv_nsec) + " " + std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) +
         " " + (real != nullptr ? real : path);
}

// "<identity>\n<digest>\n" of the memo file, the digest when the identity is the same.
std::string Remembered(const std::string& memo_path, const std::string& identity) {
  const Descriptor memo(open(memo_path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(identity.size() + kDigestChars + 2, '\0');
  if (!memo.valid() || !ReadExactly(memo.get(), 0, std::as_writable_bytes(std::span(text)), memo_path).ok()) return "";
  const std::string digest = text.substr(identity.size() + 1, kDigestChars);
  if (text != identity + "\n" + digest + "\n") return "";
  return digest.find_first_not_of("0123456789abcdef") == std::string::npos ? digest : "";
}

}  // namespace

StatusOr<std::string> ModelDigest(const std::string& path, const std::string& cache_dir) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) return ErrnoStatus(errno, "opening the model " + path);
  const std::string identity = Identity(path, info);
  const kv::Sha256Digest key = kv::Sha256(identity.data(), identity.size());
  const std::string memo_name = kv::HexString(std::span(key).first(16)) + ".digest";
  if (!cache_dir.empty()) {
    std::string digest = Remembered(cache_dir + "/" + memo_name, identity);
    if (!digest.empty()) return digest;
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  kv::Sha256Stream hash;
  std::vector<std::byte> buffer(kReadBytes);
  for (uint64_t offset = 0; offset < size; offset += kReadBytes) {
    const std::span<std::byte> part = std::span(buffer).first(std::min(kReadBytes, size - offset));
    MR_RETURN_IF_ERROR(ReadExactly(file.get(), offset, part, path));
    hash.Update(part.data(), part.size());
    const uint64_t done = offset + part.size();
    if (done % kReportBytes == 0 && done < size) {
      Log(LogLevel::kInfo, "model_hashing", {{"path", path}, {"percent", 100 * done / size}});
    }
  }
  const kv::Sha256Digest digest = hash.Finish();
  std::string hex = kv::HexString(digest);
  if (!cache_dir.empty()) {
    const std::string text = identity + "\n" + hex + "\n";
    const std::array<std::span<const std::byte>, 1> pieces = {std::as_bytes(std::span(text))};
    const Status written = WriteCacheFile(cache_dir, memo_name, pieces);
    if (!written.ok()) Log(LogLevel::kWarning, "model_digest_not_kept", {{"reason", written.message()}});
  }
  return hex;
}

}  // namespace millrace::model
