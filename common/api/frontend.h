#pragma once
// The OpenAI endpoints over one gateway::CompletionService: authentication, parsing, answers and event streams.
//
//   POST /v1/chat/completions   POST /v1/completions   GET /v1/models   GET /v1/models/{id}

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/api/api_keys.h"
#include "common/api/request_parser.h"
#include "common/base/executor.h"
#include "common/base/metrics.h"
#include "common/base/random.h"
#include "common/gateway/completion.h"
#include "common/http/router.h"

namespace millrace::api {

struct FrontendOptions {
  ApiKeys keys;
  uint32_t max_requests = 1024;          // at once; more are answered 429
  Duration event_silence = Seconds(15);  // then a stream gets a comment, so that proxies keep it open
  int64_t started_unix_s = 0;            // `created` of the models
  uint64_t random_seed = 1;              // of ids of answers; from entropy in production
};

class FrontendCall;

// Bodies above it are parsed and prepared apart from others.
constexpr size_t kLargeBodyBytes = size_t{1} << 20;

// Used on `control` only, which is also the HTTP server's handler executor; bodies are parsed on `work`, large ones on
// `large_work`, so that no small one waits behind them.
class Frontend {
 public:
  Frontend(FrontendOptions options, gateway::CompletionService& service, Executor& control, Executor& work,
           Executor& large_work, MetricRegistry& metrics);
  ~Frontend();  // cancels what is left

  void Register(http::Router& router);
  // From now on new requests are answered 503; `done` runs once, as a task, when no request is left.
  void Drain(std::function<void()> done);
  // Ends every request with an error that says the server stopped: an HTTP error, or an error event of its stream.
  void CutShort();
  size_t active() const { return calls_.size(); }

 private:
  friend class FrontendCall;

  void HandlePost(Endpoint endpoint, http::Request request, std::unique_ptr<http::Responder> responder);
  void HandleModels(http::Request request, std::unique_ptr<http::Responder> responder);
  // OK with the tenant's salt, or the refusal of a request that must not be read further.
  StatusOr<std::string> Admit(const http::Request& request) const;
  void Answer(http::Responder& responder, int status, std::vector<http::Header> headers, std::string body);
  void Refuse(http::Responder& responder, const Status& status, const std::string& request_id);
  void Count(int http_status);
  void Ended(uint64_t id);
  void CheckIdle();

  const FrontendOptions options_;
  gateway::CompletionService& service_;
  Executor& control_;
  Executor& work_;
  Executor& large_work_;
  MetricRegistry& metrics_;
  Rng rng_;
  std::map<uint64_t, std::shared_ptr<FrontendCall>> calls_;
  uint64_t next_call_ = 1;
  bool refuse_new_ = false;
  std::function<void()> when_idle_;
  std::shared_ptr<bool> alive_;
};

}  // namespace millrace::api
