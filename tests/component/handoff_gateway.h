#pragma once
// One request as a gateway drives it, and a balancer that routes it: just enough of both to use workers as they are
// used. The request checks what it is sent: ids come in order without gaps, and an id that comes twice is the same.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/executor.h"
#include "common/peer/liveness.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"

namespace millrace::component {

struct Worker {
  std::string address;
  cluster::Incarnation incarnation = 0;
  bool alive = true;  // a balancer knows of a death; it does not know of a stall
};

// Routes to the next living decode worker that is not excluded, or else to one that is.
class TestBalancer final : public peer::Service<peer::PickProtocol> {
 public:
  enum class Mode { kRoute, kWait, kShed };

  peer::StreamHandler<peer::PickProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<peer::PickProtocol>> stream) override;

  std::vector<Worker> workers;
  Mode mode = Mode::kRoute;
  uint32_t picks = 0;

 private:
  void Answer(uint64_t id, const peer::PickRequest& request);

  std::map<uint64_t, std::unique_ptr<peer::ServerStream<peer::PickProtocol>>> streams_;
  uint64_t next_id_ = 0;
};

struct GatewayWiring {
  Executor& control;
  peer::Dialer<peer::PrefillProtocol>& prefill_dialer;
  peer::Dialer<peer::DecodeProtocol>& decode_dialer;
  std::vector<Worker>& prefill_workers;
};

class TestRequest {
 public:
  TestRequest(GatewayWiring wiring, request::Generation generation, uint32_t retries);
  ~TestRequest();
  TestRequest(const TestRequest&) = delete;
  TestRequest& operator=(const TestRequest&) = delete;

  void Start();
  void Cancel();  // as when the client went away

  bool done() const { return result_.has_value(); }
  // OK: finished with `finish`. Precondition: done.
  const Status& result() const { return *result_; }
  request::FinishReason finish() const { return finish_; }
  const std::vector<request::TokenId>& generated() const { return generated_; }
  bool accepted() const { return accepted_; }
  uint32_t targets() const { return targets_; }
  uint32_t evictions() const { return evictions_; }
  uint32_t cached_tokens() const { return cached_tokens_; }           // of the newest attempt
  const std::vector<std::string>& faults() const { return faults_; }  // what broke the contract
  Status last_failure() const { return last_failure_; }

 private:
  void Enter();
  void OnPrefill(peer::PrefillProtocol::Down message);
  void OnPrefillClosed(const Status& status);
  void OnDecode(peer::DecodeProtocol::Down message);
  void OnDecodeClosed(const Status& status);
  void Attach(const peer::DecodeTarget& target);
  void Take(uint32_t index, request::TokenId token);
  void Failed(const Status& status);
  void Finished(request::FinishReason finish);
  void Tick();

  const GatewayWiring wiring_;
  const request::Generation original_;
  uint32_t retries_;
  size_t next_prefill_ = 0;
  std::vector<request::TokenId> generated_;
  uint32_t base_ = 0;  // generated before this attempt
  std::unique_ptr<peer::ClientStream<peer::PrefillProtocol>> prefill_;
  std::unique_ptr<peer::ClientStream<peer::DecodeProtocol>> decode_;
  std::optional<peer::LivenessMonitor> prefill_alive_;
  std::optional<peer::LivenessMonitor> decode_alive_;
  std::vector<cluster::Incarnation> excluded_decode_;
  peer::DecodeTarget target_;
  bool accepted_ = false;
  uint32_t targets_ = 0;
  uint32_t evictions_ = 0;
  uint32_t cached_tokens_ = 0;
  std::optional<Status> result_;
  Status last_failure_;
  request::FinishReason finish_ = request::FinishReason::kNone;
  std::vector<std::string> faults_;
  TimerId tick_ = TimerId::kNone;
  TimerId retry_ = TimerId::kNone;
};

}  // namespace millrace::component
