#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "launch/serve/wire/http_server.h"
#include "proto/base/error.h"
#include "tests/unit/launch/serve/http_client.h"

namespace tpsim::launch {
namespace {

using namespace std::chrono_literals;

class FunctionHandler final : public HttpHandler {
 public:
  std::function<void(HttpRequest, std::shared_ptr<Exchange>)> on_request =
      [](HttpRequest request, const std::shared_ptr<Exchange>& exchange) {
        exchange->respond(
            {.body = request.method + " " + request.path + " " + request.query + " " + request.body,
             .content_type = "text/plain"});
      };
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override {
    on_request(std::move(request), std::move(exchange));
  }
  HttpResponse refuse(unsigned status, const std::string& sentence) override {
    return {.status = status, .body = sentence, .content_type = "text/plain"};
  }
};

// Counts what a listener hears.
struct Listener final : ExchangeListener {
  std::function<void()> ready = [] {};
  std::promise<void> gone;
  void on_ready() override { ready(); }
  void on_gone() override { gone.set_value(); }
};

class Wire : public testing::Test {
 protected:
  void start(WireConfig config = {}) {
    config.port = 0;
    server = std::make_unique<HttpServer>(config, handler);
    server->start();
  }
  void wait_for_exchanges(std::size_t count) {
    for (int i = 0; i < 2000 && server->exchanges() != count; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(server->exchanges(), count);
  }

  FunctionHandler handler;
  std::unique_ptr<HttpServer> server;
};

TEST_F(Wire, AnswersOneRequestAfterAnotherOnAConnection) {
  start();
  HttpClient client(server->port());
  EXPECT_EQ(client.ask("GET", "/a?b=1&c=2").body, "GET /a b=1&c=2 ");
  EXPECT_EQ(client.ask("POST", "/b", "text").body, "POST /b  text");
  EXPECT_EQ(server->connections(), 1U);
}

TEST_F(Wire, AnswersRequestsThatWereSentAheadInTheirOrder) {
  start();
  HttpClient client(server->port());
  std::string all;
  for (int i = 0; i < 500; ++i) all += "GET /" + std::to_string(i) + " HTTP/1.1\r\nhost: x\r\n\r\n";
  client.send(all);
  for (int i = 0; i < 500; ++i) ASSERT_EQ(client.receive().body, "GET /" + std::to_string(i) + "  ");
}

TEST_F(Wire, ReadsBodiesInChunksAndByteByByte) {
  start();
  HttpClient client(server->port());
  client.send(
      "POST /c HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
  EXPECT_EQ(client.receive().body, "POST /c  abcdefg");
  const std::string slow = "POST /d HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nxyz";
  for (const char c : slow) client.send(std::string(1, c));
  EXPECT_EQ(client.receive().body, "POST /d  xyz");
}

TEST_F(Wire, SaysContinueToWhoWaitsForIt) {
  start();
  HttpClient client(server->port());
  client.send("POST /e HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
  EXPECT_EQ(client.receive_some(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_EQ(client.receive().body, "POST /e  ok");
}

TEST_F(Wire, RefusesLongBodiesBeforeTheyAreSent) {
  start({.max_body_bytes = 1000});
  HttpClient client(server->port());
  client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n");
  const HttpAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 413U);
  EXPECT_NE(answer.body.find("--max-body-bytes 1000"), std::string::npos);
}

TEST_F(Wire, RefusesBodiesThatTurnOutLong) {
  start({.max_body_bytes = 5});
  HttpClient client(server->port());
  client.send("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n");
  EXPECT_EQ(client.receive().status, 413U);
}

TEST_F(Wire, RefusesLongHeadsAndWhatIsNotHttp) {
  start({.max_head_bytes = 4096});
  HttpClient long_head(server->port());
  long_head.send("GET / HTTP/1.1\r\nx: " + std::string(5000, 'a') + "\r\n\r\n");
  EXPECT_EQ(long_head.receive().status, 431U);
  HttpClient nonsense(server->port());
  nonsense.send("\x16\x03\x01 hello\r\n\r\n");
  EXPECT_EQ(nonsense.receive().status, 400U);
}

TEST_F(Wire, TurnsAwayConnectionsBeyondTheLimit) {
  start({.max_connections = 2});
  HttpClient first(server->port()), second(server->port());
  EXPECT_EQ(first.ask("GET", "/").status, 200U);
  EXPECT_EQ(second.ask("GET", "/").status, 200U);
  HttpClient third(server->port());
  EXPECT_EQ(third.receive().status, 503U);
  EXPECT_EQ(first.ask("GET", "/").status, 200U);
}

TEST_F(Wire, StreamsPieceByPiece) {
  handler.on_request = [](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
    exchange->begin_stream("text/event-stream", {});
    exchange->write("one ");
    exchange->write("two");
    exchange->end_stream();
  };
  start();
  HttpClient client(server->port());
  const HttpAnswer answer = client.ask("GET", "/");
  EXPECT_EQ(answer.body, "one two");
  EXPECT_TRUE(answer.chunked);
  EXPECT_EQ(answer.content_type, "text/event-stream");
  EXPECT_EQ(client.ask("GET", "/").body, "one two");
}

TEST_F(Wire, WorksRunInTheOrderInWhichTheyAreDue) {
  using Clock = std::chrono::steady_clock;
  std::vector<int> order;
  std::vector<Clock::duration> late;
  std::promise<void> done;
  handler.on_request = [&](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
    const Clock::time_point now = Clock::now();
    const auto at = [&](std::chrono::milliseconds when, int name) {
      exchange->thread().post_at(now + when, [&, due = now + when, name] {
        order.push_back(name);
        late.push_back(Clock::now() - due);
        if (order.size() == 6) done.set_value();
      });
    };
    at(30ms, 4);
    at(10ms, 1);
    at(10ms, 2);
    at(60ms, 5);
    at(-5ms, 0);
    at(20ms, 3);
    exchange->respond({});
  };
  start();
  HttpClient client(server->port());
  client.ask("GET", "/");
  ASSERT_EQ(done.get_future().wait_for(10s), std::future_status::ready);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  for (const Clock::duration by : late) EXPECT_GE(by, 0ms) << "before its time";
}

TEST_F(Wire, AStreamsHeadHasTheHeadersOfItsAnswer) {
  handler.on_request = [](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
    exchange->begin_stream("text/plain", {{"x-one", "two"}});
    exchange->end_stream();
  };
  start();
  HttpClient client(server->port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  const std::string all = client.receive_rest();
  EXPECT_NE(all.find("\r\nx-one: two\r\n"), std::string::npos) << all;
}

TEST_F(Wire, EndsAStreamOfHttp10WithItsConnection) {
  handler.on_request = [](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
    exchange->begin_stream("text/plain", {});
    exchange->write("all");
    exchange->end_stream();
  };
  start();
  HttpClient client(server->port());
  client.send("GET / HTTP/1.0\r\n\r\n");
  const std::string all = client.receive_rest();
  EXPECT_TRUE(all.ends_with("\r\n\r\nall")) << all;
  EXPECT_EQ(all.find("chunked"), std::string::npos);
}

TEST_F(Wire, TellsAListenerThatItsClientIsGone) {
  const auto listener = std::make_shared<Listener>();
  handler.on_request = [listener](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
    exchange->listen(listener);
  };
  start();
  {
    HttpClient client(server->port());
    client.send("GET", "/", "");
    wait_for_exchanges(1);
  }
  EXPECT_EQ(listener->gone.get_future().wait_for(5s), std::future_status::ready);
  wait_for_exchanges(0);
}

TEST_F(Wire, AListenerThatComesTooLateIsTold) {
  std::promise<std::shared_ptr<Exchange>> asked;
  handler.on_request = [&](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
    asked.set_value(std::move(exchange));
  };
  start();
  std::shared_ptr<Exchange> exchange;
  {
    HttpClient client(server->port());
    client.send("GET", "/", "");
    exchange = asked.get_future().get();
  }
  wait_for_exchanges(0);
  const auto listener = std::make_shared<Listener>();
  std::promise<void> told;
  exchange->thread().post([&] {
    exchange->listen(listener);
    exchange->respond({.body = "too late"});
    exchange.reset();  // of the thread that serves it, as everywhere
    told.set_value();
  });
  told.get_future().wait();
  EXPECT_EQ(listener->gone.get_future().wait_for(5s), std::future_status::ready);
}

TEST_F(Wire, ASlowReaderHoldsUpNobodyAndGetsAllInTheEnd) {
  // Writes a megabyte whenever the socket has room, a hundred times.
  struct Pump final : ExchangeListener {
    std::shared_ptr<Exchange> exchange;
    int left = 100;
    void on_ready() override {
      while (left > 0 && exchange->ready()) {
        --left;
        exchange->write(std::string(1 << 20, 'x'));
      }
      if (left == 0 && exchange->ready()) exchange->end_stream();
    }
    void on_gone() override {}
  };
  handler.on_request = [](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    if (request.path == "/quick") return exchange->respond({.body = "quick"});
    const auto pump = std::make_shared<Pump>();
    pump->exchange = exchange;
    exchange->listen(pump);
    exchange->begin_stream("text/plain", {});
    pump->on_ready();
  };
  start();
  HttpClient slow(server->port());
  slow.send("GET", "/slow", "");
  wait_for_exchanges(1);
  HttpClient quick(server->port());
  for (int i = 0; i < 100; ++i) ASSERT_EQ(quick.ask("GET", "/quick").body, "quick");
  wait_for_exchanges(1);  // an answer is out before its exchange is over
  EXPECT_EQ(slow.receive().body.size(), std::size_t{100} << 20);
}

TEST_F(Wire, WhoTakesNothingForTooLongIsGone) {
  const auto listener = std::make_shared<Listener>();
  handler.on_request = [listener](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
    exchange->listen(listener);
    exchange->respond({.body = std::string(std::size_t{32} << 20, 'x')});
  };
  start({.send_timeout = 1s});
  HttpClient client(server->port());
  client.send("GET", "/", "");
  EXPECT_EQ(listener->gone.get_future().wait_for(10s), std::future_status::ready);
}

TEST_F(Wire, ClosesWhoIsSilent) {
  start({.idle_timeout = 1s, .receive_timeout = 1s});
  HttpClient idle(server->port()), half(server->port());
  half.send("POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\nabc");
  EXPECT_EQ(idle.receive_some(), "");
  EXPECT_EQ(half.receive_some(), "");
  EXPECT_EQ(server->connections(), 0U);
}

TEST_F(Wire, ADrainClosesTheDoorAndFinishesWhatHasBegun) {
  std::promise<std::shared_ptr<Exchange>> asked;
  handler.on_request = [&](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
    exchange->begin_stream("text/plain", {});
    asked.set_value(std::move(exchange));
  };
  start();
  HttpClient idle(server->port()), busy(server->port());
  busy.send("GET", "/", "");
  const std::shared_ptr<Exchange> exchange = asked.get_future().get();
  server->drain();
  EXPECT_EQ(idle.receive_some(), "");
  EXPECT_THROW(HttpClient late(server->port()), boost::system::system_error);
  exchange->thread().post([exchange] {
    exchange->write("the end");
    exchange->end_stream();
  });
  EXPECT_EQ(busy.receive().body, "the end");
  EXPECT_EQ(busy.receive_some(), "");
}

TEST_F(Wire, StopTellsListeners) {
  const auto listener = std::make_shared<Listener>();
  handler.on_request = [listener](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
    exchange->listen(listener);
  };
  start();
  HttpClient client(server->port());
  client.send("GET", "/", "");
  wait_for_exchanges(1);
  server->stop();
  EXPECT_EQ(listener->gone.get_future().wait_for(0s), std::future_status::ready);
  EXPECT_EQ(server->connections(), 0U);
}

TEST_F(Wire, AHandlerThatThrowsIsAnswered500) {
  handler.on_request = [](const HttpRequest&, const std::shared_ptr<Exchange>&) {
    throw std::runtime_error("oh");
  };
  start();
  HttpClient client(server->port());
  EXPECT_EQ(client.ask("GET", "/").status, 500U);
  EXPECT_EQ(client.ask("GET", "/").status, 500U);
}

TEST_F(Wire, RefusesAPortThatIsTaken) {
  start();
  try {
    HttpServer other({.port = server->port()}, handler);
    ADD_FAILURE() << "bound twice";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("--port " + std::to_string(server->port())), std::string::npos);
  }
  EXPECT_THROW(HttpServer({.host = "nowhere.example"}, handler), UserError);
}

}  // namespace
}  // namespace tpsim::launch
