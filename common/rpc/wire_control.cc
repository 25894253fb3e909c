// Messages of Report, Pick, Watch, Prefill and Decode.
#include <cmath>

#include "common/rpc/wire.h"
#include "common/rpc/wire_fields.h"

namespace millrace::rpc {
namespace {

using cluster::Role;

pb::Role RoleToWire(Role role) {
  switch (role) {
    case Role::kGateway:
      return pb::ROLE_GATEWAY;
    case Role::kPrefill:
      return pb::ROLE_PREFILL;
    case Role::kDecode:
      return pb::ROLE_DECODE;
    case Role::kStore:
      return pb::ROLE_STORE;
    case Role::kPrefillBalancer:
      return pb::ROLE_PREFILL_BALANCER;
    case Role::kDecodeBalancer:
      return pb::ROLE_DECODE_BALANCER;
  }
  return pb::ROLE_UNSPECIFIED;
}

StatusOr<Role> RoleFromWire(pb::Role role) {
  switch (role) {
    case pb::ROLE_GATEWAY:
      return Role::kGateway;
    case pb::ROLE_PREFILL:
      return Role::kPrefill;
    case pb::ROLE_DECODE:
      return Role::kDecode;
    case pb::ROLE_STORE:
      return Role::kStore;
    case pb::ROLE_PREFILL_BALANCER:
      return Role::kPrefillBalancer;
    case pb::ROLE_DECODE_BALANCER:
      return Role::kDecodeBalancer;
    default:
      return BadField("role", "is missing or unknown: " + std::to_string(static_cast<int>(role)));
  }
}

}  // namespace

void ToWire(const peer::Heartbeat& in, pb::Heartbeat& out) {
  out.set_progress(in.progress);
  out.set_busy(in.busy);
}

Status FromWire(const pb::Heartbeat& in, peer::Heartbeat& out) {
  out.progress = in.progress();
  out.busy = in.busy();
  return OkStatus();
}

void ToWire(const peer::WorkerHello& in, pb::WorkerHello& out) {
  pb::InstanceInfo& info = *out.mutable_info();
  info.set_instance_id(in.info.instance_id);
  info.set_incarnation(in.info.incarnation);
  info.set_role(RoleToWire(in.info.role));
  info.set_address(in.info.address);
  ToWire(in.info.model, *info.mutable_model());
  info.set_max_sequences(in.info.max_sequences);
  info.set_total_blocks(in.info.total_blocks);
}

Status FromWire(const pb::WorkerHello& in, peer::WorkerHello& out) {
  if (!in.has_info()) return BadField("info", "is missing");
  const pb::InstanceInfo& info = in.info();
  MR_RETURN_IF_ERROR(CopyText("instance_id", info.instance_id(), out.info.instance_id));
  MR_ASSIGN_OR_RETURN(out.info.role, RoleFromWire(info.role()));
  MR_RETURN_IF_ERROR(CopyText("address", info.address(), out.info.address));
  MR_RETURN_IF_ERROR(FromWire(info.model(), out.info.model));
  out.info.incarnation = info.incarnation();
  out.info.max_sequences = info.max_sequences();
  out.info.total_blocks = info.total_blocks();
  return OkStatus();
}

void ToWire(const peer::LoadReport& in, pb::LoadReport& out) {
  pb::Load& load = *out.mutable_load();
  load.set_sequence(in.load.sequence);
  load.set_ready(in.load.ready);
  load.set_draining(in.load.draining);
  load.set_busy(in.load.busy);
  load.set_progress(in.load.progress);
  load.set_queued_requests(in.load.queued_requests);
  load.set_queued_tokens(in.load.queued_tokens);
  load.set_running_sequences(in.load.running);
  load.set_kv_tokens(in.load.kv_tokens);
  load.set_free_blocks(in.load.free_blocks);
  load.set_tokens_per_second(in.load.tokens_per_second);
}

Status FromWire(const pb::LoadReport& in, peer::LoadReport& out) {
  const pb::Load& load = in.load();
  if (!in.has_load()) return BadField("load", "is missing");
  if (!std::isfinite(load.tokens_per_second()) || load.tokens_per_second() < 0) {
    return BadField("tokens_per_second", "is negative or not finite");
  }
  out.load.sequence = load.sequence();
  out.load.ready = load.ready();
  out.load.draining = load.draining();
  out.load.busy = load.busy();
  out.load.progress = load.progress();
  out.load.queued_requests = load.queued_requests();
  out.load.queued_tokens = load.queued_tokens();
  out.load.running = load.running_sequences();
  out.load.kv_tokens = load.kv_tokens();
  out.load.free_blocks = load.free_blocks();
  out.load.tokens_per_second = load.tokens_per_second();
  return OkStatus();
}

void ToWire(const peer::PickRequest& in, pb::PickRequest& out) {
  out.set_request_id(in.request_id);
  out.set_model(in.model);
  out.set_layout_digest(in.layout_digest);
  out.set_model_digest(in.model_digest);
  out.set_prompt_tokens(in.prompt_tokens);
  out.set_max_new_tokens(in.max_new_tokens);
  out.mutable_excluded_incarnations()->Add(in.excluded.begin(), in.excluded.end());
}

Status FromWire(const pb::PickRequest& in, peer::PickRequest& out) {
  MR_RETURN_IF_ERROR(CopyText("request_id", in.request_id(), out.request_id));
  MR_RETURN_IF_ERROR(CopyText("model", in.model(), out.model));
  MR_RETURN_IF_ERROR(CopyText("layout_digest", in.layout_digest(), out.layout_digest));
  MR_RETURN_IF_ERROR(CopyText("model_digest", in.model_digest(), out.model_digest));
  out.prompt_tokens = in.prompt_tokens();
  out.max_new_tokens = in.max_new_tokens();
  return CopyList("excluded_incarnations", in.excluded_incarnations(), kMaxIncarnations, out.excluded);
}

void ToWire(const peer::Route& in, pb::Route& out) {
  out.set_instance_id(in.instance_id);
  out.set_incarnation(in.incarnation);
  out.set_address(in.address);
}

Status FromWire(const pb::Route& in, peer::Route& out) {
  MR_RETURN_IF_ERROR(CopyText("instance_id", in.instance_id(), out.instance_id));
  out.incarnation = in.incarnation();
  return CopyText("address", in.address(), out.address);
}

void ToWire(const peer::WatchRequest&, pb::WatchRequest&) {}
Status FromWire(const pb::WatchRequest&, peer::WatchRequest&) { return OkStatus(); }

void ToWire(const peer::PoolState& in, pb::PoolState& out) {
  for (const peer::PoolModel& model : in.models) {
    pb::PoolModel& entry = *out.add_models();
    ToWire(model.model, *entry.mutable_model());
    entry.set_ready_instances(model.ready_instances);
  }
  out.mutable_live_incarnations()->Add(in.live.begin(), in.live.end());
}

Status FromWire(const pb::PoolState& in, peer::PoolState& out) {
  if (static_cast<size_t>(in.models_size()) > kMaxModels) return BadField("models", "has too many entries");
  for (const pb::PoolModel& entry : in.models()) {
    peer::PoolModel& model = out.models.emplace_back();
    MR_RETURN_IF_ERROR(FromWire(entry.model(), model.model));
    model.ready_instances = entry.ready_instances();
  }
  return CopyList("live_incarnations", in.live_incarnations(), kMaxIncarnations, out.live);
}

void ToWire(const peer::PrefillRequest& in, pb::PrefillRequest& out) {
  out.set_incarnation(in.incarnation);
  ToWire(in.generation, *out.mutable_generation());
  out.mutable_excluded_decode_incarnations()->Add(in.excluded_decode.begin(), in.excluded_decode.end());
}

Status FromWire(const pb::PrefillRequest& in, peer::PrefillRequest& out) {
  out.incarnation = in.incarnation();
  MR_RETURN_IF_ERROR(FromWire(in.generation(), out.generation));
  return CopyList("excluded_decode_incarnations", in.excluded_decode_incarnations(), kMaxIncarnations,
                  out.excluded_decode);
}

void ToWire(const peer::PrefillAccepted&, pb::PrefillAccepted&) {}
Status FromWire(const pb::PrefillAccepted&, peer::PrefillAccepted&) { return OkStatus(); }

void ToWire(const peer::DecodeTarget& in, pb::DecodeTarget& out) {
  out.set_address(in.address);
  out.set_incarnation(in.incarnation);
  out.set_session(in.session);
}

Status FromWire(const pb::DecodeTarget& in, peer::DecodeTarget& out) {
  MR_RETURN_IF_ERROR(CopyText("address", in.address(), out.address));
  out.incarnation = in.incarnation();
  return CopyText("session", in.session(), out.session);
}

void ToWire(const peer::FirstToken& in, pb::FirstToken& out) {
  out.set_token_id(in.token);
  out.set_cached_tokens(in.cached_tokens);
  out.set_finish(FinishToWire(in.finish));
}

Status FromWire(const pb::FirstToken& in, peer::FirstToken& out) {
  MR_RETURN_IF_ERROR(CopyTokenId("token_id", in.token_id(), out.token));
  out.cached_tokens = in.cached_tokens();
  return CopyFinish(in.finish(), out.finish);
}

void ToWire(const peer::Attach& in, pb::Attach& out) {
  out.set_incarnation(in.incarnation);
  out.set_session(in.session);
  out.set_from_index(in.from);
}

Status FromWire(const pb::Attach& in, peer::Attach& out) {
  out.incarnation = in.incarnation();
  out.from = in.from_index();
  return CopyText("session", in.session(), out.session);
}

void ToWire(const peer::TokenChunk& in, pb::TokenChunk& out) {
  out.set_first_index(in.first_index);
  out.mutable_token_ids()->Add(in.tokens.begin(), in.tokens.end());
}

Status FromWire(const pb::TokenChunk& in, peer::TokenChunk& out) {
  out.first_index = in.first_index();
  return CopyTokenIds("token_ids", in.token_ids(), kMaxTokens, out.tokens);
}

void ToWire(const peer::DecodeFinished& in, pb::DecodeFinished& out) { out.set_finish(FinishToWire(in.finish)); }
Status FromWire(const pb::DecodeFinished& in, peer::DecodeFinished& out) { return CopyFinish(in.finish(), out.finish); }

}  // namespace millrace::rpc
