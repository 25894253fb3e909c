#include "common/rpc/call.h"

namespace millrace::rpc {

ServerCall* ServerCall::Start(grpc::GenericCallbackServerContext& context, const Accept& accept, Executor& executor,
                              std::function<void()> done) {
  const std::shared_ptr<ServerCall> call(new ServerCall(context, executor, std::move(done)));
  call->self_ = call;
  executor.Post([call, &accept] { call->AcceptOnExecutor(accept); });
  return call.get();
}

void ServerCall::AcceptOnExecutor(const Accept& accept) {
  {
    const std::lock_guard lock(mutex_);
    if (end_.has_value()) return;  // gone before anyone saw it; `accept` may be too
  }
  std::shared_ptr<Receiver> receiver = accept(shared_from_this());
  const std::lock_guard lock(mutex_);
  if (abandoned_) return;
  receiver_ = std::move(receiver);
  if (!stop_reading_) StartReadLocked();
}

void ServerCall::StartReadLocked() {
  reading_ = true;
  StartRead(&incoming_);
}

void ServerCall::AdvanceLocked() {
  if (finished_) return;
  if (TakeNextLocked()) StartWrite(&outgoing_);
  if (end_.has_value() && !writing_ && queue_.empty()) {
    finished_ = true;
    stop_writing_ = true;
    Finish(ToGrpc(*end_));
  }
}

void ServerCall::CloseLocked(Status status) {
  if (end_.has_value()) return;
  end_ = std::move(status);
  stop_reading_ = true;
  stop_sending_ = true;
  LingerLocked();
  AdvanceLocked();
}

void ServerCall::FailLocked(Status status) {
  if (!end_.has_value()) end_ = std::move(status);
  stop_reading_ = true;
  stop_writing_ = true;
  queue_.clear();
  if (writing_) CancelLocked();  // a peer that does not read would hold it up
  AdvanceLocked();
}

bool ServerCall::LingersLocked() const { return end_.has_value(); }

void ServerCall::CancelLocked() {
  if (!over_) context_.TryCancel();
}

void ServerCall::OnReadDone(bool ok) {
  if (ok) {
    HandleMessage();
    return;
  }
  const std::lock_guard lock(mutex_);
  reading_ = false;
  stop_reading_ = true;
  if (!context_.IsCancelled() && !end_.has_value()) PostClosedLocked(OkStatus());
}

void ServerCall::OnCancel() {
  const std::lock_guard lock(mutex_);
  if (!end_.has_value()) {
    end_ = Status(Code::kCancelled, Reason::kPeerLost, "the client cancelled the stream or its connection was lost");
  }
  stop_reading_ = true;
  stop_writing_ = true;
  queue_.clear();
  AdvanceLocked();
}

void ServerCall::OnDone() {
  std::shared_ptr<Call> self;  // outlives the lock
  {
    const std::lock_guard lock(mutex_);
    self = std::move(self_);
    over_ = true;
    PostClosedLocked(*end_);
  }
  done_();
}

}  // namespace millrace::rpc
