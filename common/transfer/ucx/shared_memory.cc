#include "common/transfer/ucx/shared_memory.h"

#include <uct/api/uct.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "common/base/random.h"
#include "common/transfer/anonymous_memory.h"

namespace millrace::transfer::ucx {
namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr uint64_t kHeaderMagic = 0x314d4853544b524dull;  // "MRKTSHM1"

struct SegmentHeader {
  uint64_t magic;
  uint64_t nonce;
  uint64_t size;
};

struct Domain {
  std::string name;
  uct_component_h component = nullptr;
  uct_md_h md = nullptr;
  size_t key_bytes = 0;
};

class UctSegment final : public SharedSegment {
 public:
  UctSegment(const Domain& domain, const uct_allocated_memory_t& memory, size_t size, std::string key)
      : domain_(domain.name), memory_(memory), size_(size), key_(std::move(key)), nonce_(RandomSeed()) {
    const SegmentHeader header{kHeaderMagic, nonce_, size_};
    std::memcpy(memory_.address, &header, sizeof header);
  }
  ~UctSegment() override {
    std::memset(memory_.address, 0, sizeof(SegmentHeader));
    uct_mem_free(&memory_);
  }
  std::span<std::byte> bytes() override { return {static_cast<std::byte*>(memory_.address) + kHeaderBytes, size_}; }
  void Describe(RegionDescriptor& region) const override {
    region.domain = domain_;
    region.key = key_;
    region.segment_base = reinterpret_cast<uint64_t>(memory_.address);
    region.segment_size = size_;
    region.segment_nonce = nonce_;
  }

 private:
  const std::string domain_;
  const uct_allocated_memory_t memory_;
  const size_t size_;
  const std::string key_;
  const uint64_t nonce_;
};

class UctMapping final : public SharedMapping {
 public:
  UctMapping(uct_component_h component, const uct_rkey_bundle_t& key) : component_(component), key_(key) {}
  ~UctMapping() override { uct_rkey_release(component_, &key_); }

  Status Check(const RegionDescriptor& region) {
    void* address = nullptr;
    if (uct_rkey_ptr(component_, &key_, region.segment_base, &address) != UCS_OK || address == nullptr) {
      return Unavailable("ucx: the key of shared memory of " + region.domain + " gives no address");
    }
    SegmentHeader header;
    std::memcpy(&header, address, sizeof header);
    if (header.magic != kHeaderMagic || header.nonce != region.segment_nonce || header.size != region.segment_size) {
      return Unavailable("ucx: the peer's shared memory is gone");
    }
    bytes_ = static_cast<const std::byte*>(address) + kHeaderBytes;
    return OkStatus();
  }
  const std::byte* bytes() const override { return bytes_; }

 private:
  const uct_component_h component_;
  uct_rkey_bundle_t key_;
  const std::byte* bytes_ = nullptr;
};

class UctSharedMemory final : public SharedMemory {
 public:
  UctSharedMemory(uct_component_h* components, std::vector<Domain> domains)
      : components_(components), domains_(std::move(domains)) {}
  ~UctSharedMemory() override {
    for (const Domain& domain : domains_) uct_md_close(domain.md);
    uct_release_component_list(components_);
  }

  StatusOr<std::unique_ptr<SharedSegment>> Allocate(size_t size) override {
    std::string tried;
    for (const Domain& domain : domains_) {
      if (domain.name == "posix" && size > AvailableMemory() / 2) {  // UCX writes all of it at once
        tried += " posix: more than half of the available memory";
        continue;
      }
      const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
      uct_mem_alloc_params_t params{};
      params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
                          UCT_MEM_ALLOC_PARAM_FIELD_MDS | UCT_MEM_ALLOC_PARAM_FIELD_NAME;
      params.flags = UCT_MD_MEM_ACCESS_ALL | UCT_MD_MEM_FLAG_HIDE_ERRORS;
      params.mem_type = UCS_MEMORY_TYPE_HOST;
      params.mds.mds = &domain.md;
      params.mds.count = 1;
      params.name = "millrace";
      uct_allocated_memory_t memory{};
      const ucs_status_t status = uct_mem_alloc(size + kHeaderBytes, &method, 1, &params, &memory);
      if (status != UCS_OK) {
        tried += " " + domain.name + ": " + ucs_status_string(status);
        continue;
      }
      std::string key(domain.key_bytes, '\0');
      if (const ucs_status_t packed = uct_md_mkey_pack(domain.md, memory.memh, key.data()); packed != UCS_OK) {
        uct_mem_free(&memory);
        tried += " " + domain.name + ": key: " + ucs_status_string(packed);
        continue;
      }
      return std::unique_ptr<SharedSegment>(std::make_unique<UctSegment>(domain, memory, size, std::move(key)));
    }
    return Status(Code::kResourceExhausted, "ucx: no shared memory for " + std::to_string(size) + " bytes;" + tried);
  }

  StatusOr<std::unique_ptr<SharedMapping>> Map(const RegionDescriptor& region) override {
    for (const Domain& domain : domains_) {
      if (domain.name != region.domain) continue;
      if (region.key.size() > kMaxKeyBytes) break;
      std::string key = region.key;
      key.resize(kMaxKeyBytes);  // UCX reads as much as it wants
      uct_rkey_bundle_t bundle{};
      std::lock_guard lock(mutex_);
      if (const ucs_status_t status = uct_rkey_unpack(domain.component, key.data(), &bundle); status != UCS_OK) {
        return Unavailable("ucx: mapping shared memory of " + domain.name + ": " + ucs_status_string(status));
      }
      auto mapping = std::make_unique<UctMapping>(domain.component, bundle);
      MR_RETURN_IF_ERROR(mapping->Check(region));
      return std::unique_ptr<SharedMapping>(std::move(mapping));
    }
    return Unavailable("ucx: no memory domain '" + region.domain + "' here");
  }

 private:
  static constexpr size_t kMaxKeyBytes = 1024;

  uct_component_h* const components_;
  const std::vector<Domain> domains_;
  std::mutex mutex_;  // held while a key is unpacked
};

StatusOr<Domain> OpenDomain(uct_component_h component) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (uct_component_query(component, &attributes) != UCS_OK || attributes.md_resource_count == 0) {
    return Unavailable("ucx: component without memory domain");
  }
  std::vector<uct_md_resource_desc_t> resources(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = resources.data();
  if (uct_component_query(component, &attributes) != UCS_OK) return Unavailable("ucx: component query");
  Domain domain{.name = attributes.name, .component = component};
  uct_md_config_t* config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return Unavailable("ucx: md config");
  // Reserved huge pages are given at the first access: one that a container's limit then refuses is a SIGBUS.
  static_cast<void>(uct_config_modify(config, "MM_HUGETLB_MODE", "n"));  // a UCX without this setting goes on
  const ucs_status_t opened = uct_md_open(component, resources[0].md_name, config, &domain.md);
  uct_config_release(config);
  if (opened != UCS_OK) return Unavailable("ucx: opening " + domain.name + ": " + ucs_status_string(opened));
  uct_md_attr_t md_attributes{};
  if (uct_md_query(domain.md, &md_attributes) != UCS_OK || !(md_attributes.cap.flags & UCT_MD_FLAG_ALLOC)) {
    uct_md_close(domain.md);
    return Unavailable("ucx: " + domain.name + " allocates no memory");
  }
  domain.key_bytes = md_attributes.rkey_packed_size;
  return domain;
}

}  // namespace

std::unique_ptr<SharedMemory> OpenSharedMemory(std::span<const std::string> names) {
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (names.empty() || uct_query_components(&components, &count) != UCS_OK) return nullptr;
  std::vector<Domain> domains;
  for (const std::string& name : names) {
    for (unsigned i = 0; i < count; ++i) {
      uct_component_attr_t attributes{};
      attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
      if (uct_component_query(components[i], &attributes) != UCS_OK || name != attributes.name) continue;
      if (auto domain = OpenDomain(components[i]); domain.ok()) domains.push_back(*std::move(domain));
    }
  }
  if (domains.empty()) {
    uct_release_component_list(components);
    return nullptr;
  }
  return std::make_unique<UctSharedMemory>(components, std::move(domains));
}

}  // namespace millrace::transfer::ucx
