#include "common/rpc/wire_fields.h"

#include <cmath>

namespace millrace::rpc {

Status BadField(std::string_view field, std::string_view why) {
  return InvalidArgument(std::string("malformed message from a peer: ").append(field).append(" ").append(why));
}

Status CopyText(std::string_view field, const std::string& in, std::string& out) {
  if (in.size() > kMaxTextBytes) {
    return BadField(field, "has " + std::to_string(in.size()) + " bytes, more than " + std::to_string(kMaxTextBytes));
  }
  out = in;
  return OkStatus();
}

Status CopyTokenId(std::string_view field, int32_t in, request::TokenId& out) {
  if (in < 0) return BadField(field, "is a negative token id");
  out = in;
  return OkStatus();
}

Status CopyFinish(pb::FinishReason in, request::FinishReason& out) {
  switch (in) {
    case pb::FINISH_REASON_NONE:
      out = request::FinishReason::kNone;
      return OkStatus();
    case pb::FINISH_REASON_STOP:
      out = request::FinishReason::kStop;
      return OkStatus();
    case pb::FINISH_REASON_LENGTH:
      out = request::FinishReason::kLength;
      return OkStatus();
    default:
      return BadField("finish", "is unknown: " + std::to_string(static_cast<int>(in)));
  }
}

pb::FinishReason FinishToWire(request::FinishReason reason) {
  switch (reason) {
    case request::FinishReason::kNone:
      return pb::FINISH_REASON_NONE;
    case request::FinishReason::kStop:
      return pb::FINISH_REASON_STOP;
    case request::FinishReason::kLength:
      return pb::FINISH_REASON_LENGTH;
  }
  return pb::FINISH_REASON_NONE;
}

void ToWire(const cluster::ModelIdentity& in, pb::ModelIdentity& out) {
  out.set_name(in.name);
  out.set_layout_digest(in.layout_digest);
  out.set_context_tokens(in.context_tokens);
  out.set_model_digest(in.model_digest);
}

Status FromWire(const pb::ModelIdentity& in, cluster::ModelIdentity& out) {
  MR_RETURN_IF_ERROR(CopyText("model.name", in.name(), out.name));
  MR_RETURN_IF_ERROR(CopyText("model.layout_digest", in.layout_digest(), out.layout_digest));
  out.context_tokens = in.context_tokens();
  return CopyText("model.model_digest", in.model_digest(), out.model_digest);
}

void ToWire(const peer::MemoryAddress& in, pb::MemoryAddress& out) {
  out.set_transport_address(in.transport_address);
  out.set_region_descriptor(in.region_descriptor);
}

Status FromWire(const pb::MemoryAddress& in, peer::MemoryAddress& out) {
  if (in.transport_address().size() > kMaxDescriptorBytes) return BadField("transport_address", "is too long");
  if (in.region_descriptor().size() > kMaxDescriptorBytes) return BadField("region_descriptor", "is too long");
  out.transport_address = in.transport_address();
  out.region_descriptor = in.region_descriptor();
  return OkStatus();
}

namespace {

void ToWire(const request::SamplingParams& in, pb::SamplingParams& out) {
  out.set_temperature(in.temperature);
  out.set_top_p(in.top_p);
  out.set_top_k(in.top_k);
  out.set_min_p(in.min_p);
  out.set_presence_penalty(in.presence_penalty);
  out.set_frequency_penalty(in.frequency_penalty);
  out.set_repetition_penalty(in.repetition_penalty);
  for (const auto& [id, bias] : in.logit_bias) {
    pb::SamplingParams::Bias& entry = *out.add_logit_bias();
    entry.set_token_id(id);
    entry.set_bias(bias);
  }
  out.set_seed(in.seed);
}

Status CopyLogitBias(const pb::SamplingParams& in, request::SamplingParams& out) {
  if (static_cast<size_t>(in.logit_bias_size()) > kMaxLogitBias) return BadField("logit_bias", "has too many entries");
  out.logit_bias.reserve(static_cast<size_t>(in.logit_bias_size()));
  int64_t last_id = -1;
  for (const pb::SamplingParams::Bias& entry : in.logit_bias()) {
    if (entry.token_id() <= last_id) return BadField("logit_bias", "is not in ascending order of ids");
    if (!std::isfinite(entry.bias())) return BadField("logit_bias", "has a bias that is not finite");
    last_id = entry.token_id();
    out.logit_bias.emplace_back(entry.token_id(), entry.bias());
  }
  return OkStatus();
}

Status FromWire(const pb::SamplingParams& in, request::SamplingParams& out) {
  for (const float value : {in.temperature(), in.top_p(), in.min_p(), in.presence_penalty(), in.frequency_penalty(),
                            in.repetition_penalty()}) {
    if (!std::isfinite(value)) return BadField("sampling", "has a number that is not finite");
  }
  out.temperature = in.temperature();
  out.top_p = in.top_p();
  out.top_k = in.top_k();
  out.min_p = in.min_p();
  out.presence_penalty = in.presence_penalty();
  out.frequency_penalty = in.frequency_penalty();
  out.repetition_penalty = in.repetition_penalty();
  out.seed = in.seed();
  return CopyLogitBias(in, out);
}

}  // namespace

void ToWire(const request::Generation& in, pb::Generation& out) {
  out.set_request_id(in.request_id);
  out.mutable_token_ids()->Add(in.tokens.begin(), in.tokens.end());
  out.set_prompt_tokens(in.prompt_tokens);
  out.set_max_new_tokens(in.max_new_tokens);
  ToWire(in.sampling, *out.mutable_sampling());
  out.mutable_stop_token_ids()->Add(in.stop_ids.begin(), in.stop_ids.end());
  out.set_min_tokens(in.min_tokens);
  out.set_tenant_salt(in.tenant_salt);
  out.set_cache_read(in.cache_read);
  out.set_cache_write(in.cache_write);
}

Status FromWire(const pb::Generation& in, request::Generation& out) {
  MR_RETURN_IF_ERROR(CopyText("request_id", in.request_id(), out.request_id));
  MR_RETURN_IF_ERROR(CopyTokenIds("token_ids", in.token_ids(), kMaxTokens, out.tokens));
  if (in.prompt_tokens() < 1 || in.prompt_tokens() > out.tokens.size()) {
    return BadField("prompt_tokens", "is not from 1 to the number of token ids");
  }
  if (in.max_new_tokens() < 1) return BadField("max_new_tokens", "is 0");
  if (!in.has_sampling()) return BadField("sampling", "is missing");
  out.prompt_tokens = in.prompt_tokens();
  out.max_new_tokens = in.max_new_tokens();
  MR_RETURN_IF_ERROR(FromWire(in.sampling(), out.sampling));
  MR_RETURN_IF_ERROR(CopyTokenIds("stop_token_ids", in.stop_token_ids(), kMaxStopIds, out.stop_ids));
  out.min_tokens = in.min_tokens();
  MR_RETURN_IF_ERROR(CopyText("tenant_salt", in.tenant_salt(), out.tenant_salt));
  out.cache_read = in.cache_read();
  out.cache_write = in.cache_write();
  return OkStatus();
}

}  // namespace millrace::rpc
