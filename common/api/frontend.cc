#include "common/api/frontend.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/api/error_body.h"
#include "common/api/json.h"
#include "common/api/response_writer.h"
#include "common/base/log.h"

namespace millrace::api {

namespace {

// "a%2Fb" -> "a/b"; a '%' that starts no byte stays.
std::string PercentDecode(std::string_view text) {
  auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string ModelJson(const gateway::ServedModel& model, int64_t created) {
  std::string out = "{\"id\":" + JsonString(model.name) +
                    ",\"object\":\"model\",\"created\":" + std::to_string(created) + ",\"owned_by\":\"millrace\"";
  if (model.context_tokens > 0) out += ",\"max_model_len\":" + std::to_string(model.context_tokens);
  return out + "}";
}

// "millrace-cache: no-store, no-read"
Status ReadCacheHeader(std::string_view value, gateway::CompletionRequest& request) {
  while (!value.empty()) {
    const size_t comma = std::min(value.find(','), value.size());
    std::string_view word = value.substr(0, comma);
    value.remove_prefix(std::min(comma + 1, value.size()));
    word.remove_prefix(std::min(word.find_first_not_of(" \t"), word.size()));
    word = word.substr(0, word.find_last_not_of(" \t") + 1);
    if (word == "no-store") {
      request.cache_write = false;
    } else if (word == "no-read") {
      request.cache_read = false;
    } else if (!word.empty()) {
      return Status(
                 Code::kInvalidArgument, Reason::kBadValue,
                 "Invalid value for the header 'millrace-cache': must be 'no-store', 'no-read' or both with a comma.")
          .WithParam("millrace-cache");
    }
  }
  return OkStatus();
}

}  // namespace

// One POST, from its body to its last byte.
class FrontendCall final : public gateway::CompletionSink, public std::enable_shared_from_this<FrontendCall> {
 public:
  FrontendCall(Frontend& frontend, uint64_t id, std::string request_id, std::unique_ptr<http::Responder> responder)
      : frontend_(frontend), id_(id), request_id_(std::move(request_id)), responder_(std::move(responder)) {}

  void Begin(Endpoint endpoint, http::Request request, std::string tenant_salt);
  void Cancel();
  void CutShort(const Status& why);

  void OnAccepted(gateway::Accepted accepted) override;
  void OnDelta(gateway::Delta delta) override;
  void OnFinished(gateway::Finished finished) override;
  void OnFailed(Status status) override;

 private:
  void OnParsed(StatusOr<ApiRequest> parsed);
  void StartStream();
  void Write(std::string events);
  void ArmSilence();
  void End();

  Frontend& frontend_;
  const uint64_t id_;
  const std::string request_id_;
  std::unique_ptr<http::Responder> responder_;
  std::optional<ResponseWriter> writer_;
  gateway::CallId call_ = gateway::CallId::kNone;
  gateway::Accepted accepted_;
  std::string text_;  // of a whole answer
  TokenIds ids_;
  bool stream_ = false;
  bool ended_ = false;
  TimePoint last_write_{};
  TimerId silence_ = TimerId::kNone;
};

void FrontendCall::Begin(Endpoint endpoint, http::Request request, std::string tenant_salt) {
  responder_->OnDisconnect([this] { Cancel(); });
  auto shared = std::make_shared<http::Request>(std::move(request));
  auto salt = std::make_shared<std::string>(std::move(tenant_salt));
  const bool large = shared->body.size() > kLargeBodyBytes;
  Executor& work = large ? frontend_.large_work_ : frontend_.work_;
  work.Post([weak = weak_from_this(), control = &frontend_.control_, shared, salt, endpoint, request_id = request_id_,
             large] {
    if (weak.expired()) return;
    auto parsed = std::make_shared<StatusOr<ApiRequest>>(ParseRequest(endpoint, shared->body));
    if (parsed->ok()) {
      gateway::CompletionRequest& completion = parsed->value().completion;
      completion.request_id = request_id;
      completion.large = large;
      completion.tenant_salt = *salt;
      Status status = ReadCacheHeader(shared->HeaderValue("millrace-cache"), completion);
      if (!status.ok()) *parsed = std::move(status);
    }
    control->Post([weak, parsed] {
      if (auto call = weak.lock()) call->OnParsed(std::move(*parsed));
    });
  });
}

void FrontendCall::OnParsed(StatusOr<ApiRequest> parsed) {
  if (ended_) return;
  Status status = parsed.ok() ? frontend_.service_.CheckModel(parsed->completion.model) : parsed.status();
  if (!status.ok()) return OnFailed(std::move(status));
  ApiRequest& request = *parsed;
  stream_ = request.stream;
  const char* prefix = request.endpoint == Endpoint::kChat ? "chatcmpl-" : "cmpl-";
  writer_.emplace(AnswerIdentity{request.endpoint, http::NewId(frontend_.rng_, prefix), WallClockMs() / 1000,
                                 request.completion.model, request.include_usage, request.return_token_ids});
  call_ = frontend_.service_.Start(std::move(request.completion), *this);
}

void FrontendCall::OnAccepted(gateway::Accepted accepted) {
  accepted_ = std::move(accepted);
  if (!stream_) {
    text_ = accepted_.prompt_text;
    return;
  }
  StartStream();
  Write(writer_->StartEvent(accepted_.prompt_ids, accepted_.prompt_text));
}

void FrontendCall::StartStream() {
  frontend_.Count(200);
  responder_->StartStream(200, {{"Content-Type", "text/event-stream; charset=utf-8"},
                                {"Cache-Control", "no-cache"},
                                {"X-Accel-Buffering", "no"}});
  last_write_ = frontend_.control_.Now();
  ArmSilence();
}

void FrontendCall::ArmSilence() {
  silence_ = frontend_.control_.PostAt(last_write_ + frontend_.options_.event_silence, [this] {
    if (frontend_.control_.Now() - last_write_ >= frontend_.options_.event_silence) Write(": keep-alive\n\n");
    ArmSilence();
  });
}

void FrontendCall::Write(std::string events) {
  if (events.empty()) return;
  last_write_ = frontend_.control_.Now();
  responder_->Write(std::move(events));
}

void FrontendCall::OnDelta(gateway::Delta delta) {
  if (stream_) return Write(writer_->DeltaEvent(delta));
  text_ += delta.text;
  ids_.insert(ids_.end(), delta.ids.begin(), delta.ids.end());
}

void FrontendCall::OnFinished(gateway::Finished finished) {
  if (stream_) {
    Write(writer_->EndEvents(finished));
    responder_->End();
  } else {
    frontend_.Answer(*responder_, 200, {{"Content-Type", "application/json"}},
                     writer_->WholeBody(accepted_.prompt_ids, text_, ids_, finished));
  }
  End();
}

void FrontendCall::OnFailed(Status status) {
  bool started = stream_ && silence_ != TimerId::kNone;
  if (started) {
    Write(ResponseWriter::ErrorEvent(status));
    responder_->End();
  } else {
    frontend_.Refuse(*responder_, status, request_id_);
  }
  End();
}

void FrontendCall::Cancel() {
  if (ended_) return;
  if (call_ != gateway::CallId::kNone) {
    frontend_.service_.Cancel(call_);
  } else {
    Log(LogLevel::kInfo, "request_left_unread",
        {{"request_id", request_id_}, {"cause", "the client left or closed its sending side, or the gateway stops"}});
  }
  End();
}

void FrontendCall::CutShort(const Status& why) {
  if (ended_) return;
  if (call_ != gateway::CallId::kNone) frontend_.service_.Cancel(call_);
  OnFailed(why);
}

// This may run inside a callback of the service or of the responder, so both go as a later task.
void FrontendCall::End() {
  ended_ = true;
  frontend_.control_.Cancel(silence_);
  frontend_.Ended(id_);
}

Frontend::Frontend(FrontendOptions options, gateway::CompletionService& service, Executor& control, Executor& work,
                   Executor& large_work, MetricRegistry& metrics)
    : options_(std::move(options)),
      service_(service),
      control_(control),
      work_(work),
      large_work_(large_work),
      metrics_(metrics),
      rng_(options_.random_seed),
      alive_(std::make_shared<bool>(true)) {
  for (int status : {200, 400, 401, 404, 429, 500, 503}) {
    metrics_.AddCounter("millrace_gateway_http_responses_total", "Answers of the API, by HTTP status.",
                        {{"status", std::to_string(status)}});
  }
}

Frontend::~Frontend() {
  auto calls = calls_;
  for (auto& [id, call] : calls) call->Cancel();
}

void Frontend::Register(http::Router& router) {
  auto post = [this](Endpoint endpoint) {
    return [this, endpoint](http::Request request, std::unique_ptr<http::Responder> responder) {
      HandlePost(endpoint, std::move(request), std::move(responder));
    };
  };
  auto models = [this](http::Request request, std::unique_ptr<http::Responder> responder) {
    HandleModels(std::move(request), std::move(responder));
  };
  router.Add("POST", "/v1/chat/completions", post(Endpoint::kChat));
  router.Add("POST", "/v1/completions", post(Endpoint::kCompletions));
  router.Add("GET", "/v1/models", models);
  router.Add("GET", "/v1/models/*", models);
}

StatusOr<std::string> Frontend::Admit(const http::Request& request) const {
  MR_ASSIGN_OR_RETURN(std::string salt, options_.keys.Check(request));
  if (refuse_new_) {
    return Status(Code::kUnavailable, Reason::kDraining, "The server is shutting down.").WithRetryAfterMs(1000);
  }
  if (calls_.size() >= options_.max_requests) {
    return Status(Code::kResourceExhausted, Reason::kOverloaded, "Too many requests are running. Try again shortly.")
        .WithRetryAfterMs(1000);
  }
  return salt;
}

void Frontend::HandlePost(Endpoint endpoint, http::Request request, std::unique_ptr<http::Responder> responder) {
  StatusOr<std::string> salt = Admit(request);
  if (!salt.ok()) return Refuse(*responder, salt.status(), request.id);
  uint64_t id = next_call_++;
  auto call = std::make_shared<FrontendCall>(*this, id, request.id, std::move(responder));
  calls_.emplace(id, call);
  call->Begin(endpoint, std::move(request), *std::move(salt));
}

void Frontend::HandleModels(http::Request request, std::unique_ptr<http::Responder> responder) {
  StatusOr<std::string> salt = options_.keys.Check(request);
  if (!salt.ok()) return Refuse(*responder, salt.status(), request.id);
  constexpr std::string_view kPrefix = "/v1/models/";
  std::vector<http::Header> headers = {{"Content-Type", "application/json"}};
  std::string list;
  bool one = request.path.starts_with(kPrefix);
  std::string wanted = one ? PercentDecode(std::string_view(request.path).substr(kPrefix.size())) : "";
  for (const gateway::ServedModel& model : service_.Models()) {
    std::string json = ModelJson(model, options_.started_unix_s);
    if (one && model.name == wanted) return Answer(*responder, 200, std::move(headers), std::move(json));
    list += (list.empty() ? "" : ",") + json;
  }
  if (!one) {
    return Answer(*responder, 200, std::move(headers), "{\"object\":\"list\",\"data\":[" + list + "]}");
  }
  Refuse(*responder,
         Status(Code::kNotFound, Reason::kModelNotFound,
                "The model does not exist here. GET /v1/models lists those that do.")
             .WithParam("model"),
         request.id);
}

void Frontend::Answer(http::Responder& responder, int status, std::vector<http::Header> headers, std::string body) {
  Count(status);
  responder.Send(status, std::move(headers), std::move(body));
}

void Frontend::Refuse(http::Responder& responder, const Status& status, const std::string& request_id) {
  int http_status = HttpStatus(status);
  Log(http_status >= 500 ? LogLevel::kWarning : LogLevel::kInfo, "request_refused",
      {{"request_id", request_id},
       {"http_status", http_status},
       {"param", status.param()},
       {"status", status.ToString()}});
  Answer(responder, http_status, ErrorHeaders(status), ErrorBody(status));
}

void Frontend::Count(int http_status) {
  metrics_
      .AddCounter("millrace_gateway_http_responses_total", "Answers of the API, by HTTP status.",
                  {{"status", std::to_string(http_status)}})
      .Add();
}

void Frontend::Ended(uint64_t id) {
  control_.Post([this, alive = std::weak_ptr<bool>(alive_), id] {
    if (alive.expired()) return;
    calls_.erase(id);
    CheckIdle();
  });
}

void Frontend::Drain(std::function<void()> done) {
  refuse_new_ = true;
  when_idle_ = std::move(done);
  control_.Post([this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) CheckIdle();
  });
}

void Frontend::CutShort() {
  const Status why = Status(Code::kUnavailable, Reason::kDraining, "The server stopped before the answer was complete.")
                         .WithRetryAfterMs(1000);
  auto calls = calls_;
  for (auto& [id, call] : calls) call->CutShort(why);
}

void Frontend::CheckIdle() {
  if (calls_.empty() && when_idle_) std::exchange(when_idle_, nullptr)();
}

}  // namespace millrace::api
