#pragma once
// Fields and values that several messages share.

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/codec.h"
#include "common/rpc/wire.h"

namespace millrace::rpc {

Status BadField(std::string_view field, std::string_view why);

Status CopyText(std::string_view field, const std::string& in, std::string& out);
Status CopyTokenId(std::string_view field, int32_t in, request::TokenId& out);
Status CopyFinish(pb::FinishReason in, request::FinishReason& out);
pb::FinishReason FinishToWire(request::FinishReason reason);

template <class Repeated, class T>
Status CopyList(std::string_view field, const Repeated& in, size_t limit, std::vector<T>& out) {
  if (static_cast<size_t>(in.size()) > limit) {
    return BadField(field, "has " + std::to_string(in.size()) + " entries, more than " + std::to_string(limit));
  }
  out.assign(in.begin(), in.end());
  return OkStatus();
}

template <class Repeated>
Status CopyTokenIds(std::string_view field, const Repeated& in, size_t limit, std::vector<request::TokenId>& out) {
  MR_RETURN_IF_ERROR(CopyList(field, in, limit, out));
  for (const request::TokenId id : out) {
    if (id < 0) return BadField(field, "has a negative token id");
  }
  return OkStatus();
}

void ToWire(const cluster::ModelIdentity& in, pb::ModelIdentity& out);
Status FromWire(const pb::ModelIdentity& in, cluster::ModelIdentity& out);
void ToWire(const peer::MemoryAddress& in, pb::MemoryAddress& out);
Status FromWire(const pb::MemoryAddress& in, peer::MemoryAddress& out);
void ToWire(const request::Generation& in, pb::Generation& out);
Status FromWire(const pb::Generation& in, request::Generation& out);

}  // namespace millrace::rpc
