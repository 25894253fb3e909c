#pragma once
// Domain values to and from their generated messages. FromWire refuses with kInvalidArgument, naming the field.

#include "common/base/status.h"
#include "common/peer/protocols.h"
#include "millrace/v1/balancer.pb.h"
#include "millrace/v1/decode.pb.h"
#include "millrace/v1/ids.pb.h"
#include "millrace/v1/kvstore.pb.h"
#include "millrace/v1/load.pb.h"
#include "millrace/v1/prefill.pb.h"

namespace millrace::rpc {

namespace pb = ::millrace::v1;

void ToWire(const Status& in, pb::Outcome& out);
Status FromWire(const pb::Outcome& in, Status& out);

void ToWire(const peer::Heartbeat& in, pb::Heartbeat& out);
Status FromWire(const pb::Heartbeat& in, peer::Heartbeat& out);

void ToWire(const peer::WorkerHello& in, pb::WorkerHello& out);
Status FromWire(const pb::WorkerHello& in, peer::WorkerHello& out);
void ToWire(const peer::LoadReport& in, pb::LoadReport& out);
Status FromWire(const pb::LoadReport& in, peer::LoadReport& out);

void ToWire(const peer::PickRequest& in, pb::PickRequest& out);
Status FromWire(const pb::PickRequest& in, peer::PickRequest& out);
void ToWire(const peer::Route& in, pb::Route& out);
Status FromWire(const pb::Route& in, peer::Route& out);

void ToWire(const peer::WatchRequest& in, pb::WatchRequest& out);
Status FromWire(const pb::WatchRequest& in, peer::WatchRequest& out);
void ToWire(const peer::PoolState& in, pb::PoolState& out);
Status FromWire(const pb::PoolState& in, peer::PoolState& out);

void ToWire(const peer::PrefillRequest& in, pb::PrefillRequest& out);
Status FromWire(const pb::PrefillRequest& in, peer::PrefillRequest& out);
void ToWire(const peer::PrefillAccepted& in, pb::PrefillAccepted& out);
Status FromWire(const pb::PrefillAccepted& in, peer::PrefillAccepted& out);
void ToWire(const peer::DecodeTarget& in, pb::DecodeTarget& out);
Status FromWire(const pb::DecodeTarget& in, peer::DecodeTarget& out);
void ToWire(const peer::FirstToken& in, pb::FirstToken& out);
Status FromWire(const pb::FirstToken& in, peer::FirstToken& out);

void ToWire(const peer::Reserve& in, pb::Reserve& out);
Status FromWire(const pb::Reserve& in, peer::Reserve& out);
void ToWire(const peer::Reserved& in, pb::Reserved& out);
Status FromWire(const pb::Reserved& in, peer::Reserved& out);
void ToWire(const peer::LayerBlocks& in, pb::LayerBlocks& out);
Status FromWire(const pb::LayerBlocks& in, peer::LayerBlocks& out);
void ToWire(const peer::HandoffEnd& in, pb::HandoffEnd& out);
Status FromWire(const pb::HandoffEnd& in, peer::HandoffEnd& out);
void ToWire(const peer::HandoffComplete& in, pb::HandoffComplete& out);
Status FromWire(const pb::HandoffComplete& in, peer::HandoffComplete& out);

void ToWire(const peer::Attach& in, pb::Attach& out);
Status FromWire(const pb::Attach& in, peer::Attach& out);
void ToWire(const peer::TokenChunk& in, pb::TokenChunk& out);
Status FromWire(const pb::TokenChunk& in, peer::TokenChunk& out);
void ToWire(const peer::DecodeFinished& in, pb::DecodeFinished& out);
Status FromWire(const pb::DecodeFinished& in, peer::DecodeFinished& out);

void ToWire(const peer::StoreHello& in, pb::StoreHello& out);
Status FromWire(const pb::StoreHello& in, peer::StoreHello& out);
void ToWire(const peer::StoreWelcome& in, pb::StoreWelcome& out);
Status FromWire(const pb::StoreWelcome& in, peer::StoreWelcome& out);
void ToWire(const peer::LookupBlocks& in, pb::LookupBlocks& out);
Status FromWire(const pb::LookupBlocks& in, peer::LookupBlocks& out);
void ToWire(const peer::LookupDone& in, pb::LookupDone& out);
Status FromWire(const pb::LookupDone& in, peer::LookupDone& out);
void ToWire(const peer::LoadBlocks& in, pb::LoadBlocks& out);
Status FromWire(const pb::LoadBlocks& in, peer::LoadBlocks& out);
void ToWire(const peer::LoadDone& in, pb::LoadDone& out);
Status FromWire(const pb::LoadDone& in, peer::LoadDone& out);
void ToWire(const peer::ReleaseLease& in, pb::ReleaseLease& out);
Status FromWire(const pb::ReleaseLease& in, peer::ReleaseLease& out);
void ToWire(const peer::PutBlock& in, pb::PutBlock& out);
Status FromWire(const pb::PutBlock& in, peer::PutBlock& out);
void ToWire(const peer::PutDone& in, pb::PutDone& out);
Status FromWire(const pb::PutDone& in, peer::PutDone& out);

}  // namespace millrace::rpc
