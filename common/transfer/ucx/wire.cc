#include "common/transfer/ucx/wire.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace millrace::transfer::ucx {

std::string EncodeAddress(const Address& address) {
  BlobWriter writer;
  writer.Bytes("ucx").Id(address.id).Bytes(address.host.boot).Bytes(address.host.network);
  writer.U8(static_cast<uint8_t>(address.sockets.size()));
  for (const std::string& socket : address.sockets) writer.Bytes(socket);
  return writer.Finish(BlobKind::kAddress);
}

StatusOr<Address> DecodeAddress(const std::string& blob) {
  MR_ASSIGN_OR_RETURN(BlobReader reader, BlobReader::Open(BlobKind::kAddress, blob));
  if (reader.Bytes() != "ucx") return InvalidArgument("not the address of a ucx transport");
  Address address;
  address.id = reader.Id();
  address.host.boot = reader.Bytes();
  address.host.network = reader.Bytes();
  for (uint8_t left = reader.U8(); left > 0; --left) address.sockets.emplace_back(reader.Bytes());
  if (!reader.complete()) return InvalidArgument("the address of a ucx transport is malformed");
  return address;
}

std::string EncodeRegion(const RegionDescriptor& region) {
  return BlobWriter()
      .Id(region.owner)
      .U64(region.region)
      .U64(region.size)
      .Bytes(region.domain)
      .Bytes(region.key)
      .U64(region.segment_base)
      .U64(region.segment_size)
      .U64(region.segment_nonce)
      .U64(region.offset)
      .Finish(BlobKind::kRegion);
}

StatusOr<RegionDescriptor> DecodeRegion(const std::string& blob) {
  MR_ASSIGN_OR_RETURN(BlobReader reader, BlobReader::Open(BlobKind::kRegion, blob));
  RegionDescriptor region;
  region.owner = reader.Id();
  region.region = reader.U64();
  region.size = reader.U64();
  region.domain = reader.Bytes();
  region.key = reader.Bytes();
  region.segment_base = reader.U64();
  region.segment_size = reader.U64();
  region.segment_nonce = reader.U64();
  region.offset = reader.U64();
  const bool inside = region.domain.empty() ||
                      (region.offset <= region.segment_size && region.size <= region.segment_size - region.offset);
  if (!reader.complete() || !inside) return InvalidArgument("the descriptor of a ucx region is malformed");
  return region;
}

HostIdentity ThisHost() {
  HostIdentity host;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, host.boot);
  std::error_code error;
  host.network = std::filesystem::read_symlink("/proc/self/ns/net", error).string();
  return host;
}

}  // namespace millrace::transfer::ucx
