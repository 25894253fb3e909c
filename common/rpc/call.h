#pragma once
// One gRPC call as a stream of messages in bytes, driven from the executor of its peer::Stream. gRPC's threads only
// decode, post to that executor and start the next operation; all state they share with it is behind one mutex per
// call. A call keeps itself alive until gRPC is done with it, whatever its stream does; once its stream is gone
// (Abandon), it never touches the executor or the handlers again.

#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/executor.h"
#include "common/base/status.h"

namespace millrace::rpc {

// Where a call's messages go. Decode runs on a gRPC thread and keeps the message until Deliver, which always comes
// before the next Decode. The other methods run on the executor.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual Status Decode(std::string_view bytes) = 0;
  virtual void Deliver() = 0;
  virtual void Closed(Status status) = 0;  // once, last
  virtual void Forget() = 0;               // drops the handlers, which may be running; later calls do nothing
};

class Call : public std::enable_shared_from_this<Call> {
 public:
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The stream's methods, from the executor; contract in common/peer/stream.h.
  void Send(std::string bytes);
  void Close(Status status);
  size_t pending_sends() const;
  // The stream is destroyed. Also from another thread once the executor has stopped.
  void Abandon();

 protected:
  explicit Call(Executor& executor) : executor_(executor) {}

  // All *Locked are called with mutex_ held.
  virtual void StartReadLocked() = 0;
  virtual void AdvanceLocked() = 0;  // starts whatever the state now asks for
  bool TakeNextLocked();             // takes the next message to outgoing_, if one may be written now
  void LingerLocked();               // cancels the call unless it ends soon
  virtual void CloseLocked(Status status) = 0;
  virtual void FailLocked(Status status) = 0;  // ends the call now, dropping what was queued
  virtual bool LingersLocked() const = 0;      // closed in order, with something still to do for the peer
  virtual void CancelLocked() = 0;             // lets the call end at once, if it has not

  // After a message was read, a write ended; on a gRPC thread.
  void HandleMessage();
  void WriteDone(bool ok);
  void PostClosedLocked(Status status);

  mutable std::mutex mutex_;
  Executor& executor_;                  // used only while !abandoned_
  std::shared_ptr<Receiver> receiver_;  // set before the first read; handlers inside belong to the executor

  // Guarded by mutex_.
  std::deque<grpc::ByteBuffer> queue_;
  bool reading_ = false;  // from StartRead until the message is decoded
  bool writing_ = false;
  bool stop_reading_ = false;  // deliver and read no more
  bool stop_sending_ = false;  // queue no more
  bool stop_writing_ = false;  // write no more
  bool abandoned_ = false;

  // Owned by gRPC while reading_ / writing_.
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;

 private:
  void DeliverOnExecutor();

  bool closed_posted_ = false;           // guarded by mutex_
  std::unique_ptr<grpc::Alarm> linger_;  // guarded by mutex_
};

class ClientCall final : public Call, private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  static std::shared_ptr<ClientCall> Start(std::shared_ptr<grpc::Channel> channel, const std::string& method,
                                           Executor& executor, std::shared_ptr<Receiver> receiver);

 private:
  explicit ClientCall(Executor& executor) : Call(executor) {}

  void StartReadLocked() override;
  void AdvanceLocked() override;
  void CloseLocked(Status status) override;
  void FailLocked(Status status) override;
  bool LingersLocked() const override;
  void CancelLocked() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnDone(const grpc::Status& status) override;

  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::shared_ptr<Call> self_;  // from Start to OnDone

  // Guarded by mutex_.
  std::optional<Status> local_end_;  // why this side ended the call
  bool half_closing_ = false;        // Close(OK): writes-done after the queue
  bool half_closed_ = false;
  bool released_ = false;  // the hold that lets operations start outside of reactions; none may after
};

class ServerCall final : public Call, public grpc::ServerGenericBidiReactor {
 public:
  // On the executor: makes the stream of `call`, has the service accept it and returns where messages go.
  using Accept = std::function<std::shared_ptr<Receiver>(std::shared_ptr<Call> call)>;

  // The reactor of a new call. `accept` and `executor` live until `done` is called, on a gRPC thread, when gRPC is
  // done with the call.
  static ServerCall* Start(grpc::GenericCallbackServerContext& context, const Accept& accept, Executor& executor,
                           std::function<void()> done);

 private:
  ServerCall(grpc::GenericCallbackServerContext& context, Executor& executor, std::function<void()> done)
      : Call(executor), context_(context), done_(std::move(done)) {}

  void AcceptOnExecutor(const Accept& accept);

  void StartReadLocked() override;
  void AdvanceLocked() override;
  void CloseLocked(Status status) override;
  void FailLocked(Status status) override;
  bool LingersLocked() const override;
  void CancelLocked() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { WriteDone(ok); }
  void OnCancel() override;
  void OnDone() override;

  grpc::GenericCallbackServerContext& context_;  // until OnDone
  std::function<void()> done_;
  std::shared_ptr<Call> self_;  // from Start to OnDone

  // Guarded by mutex_.
  std::optional<Status> end_;  // what the call ends or ended with
  bool finished_ = false;      // Finish was called; no operation may start after
  bool over_ = false;          // context_ is gone
};

// The status of a call that ended on the other side or in between.
Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const Status& status);

}  // namespace millrace::rpc
