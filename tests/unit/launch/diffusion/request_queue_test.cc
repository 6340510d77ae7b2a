#include "launch/diffusion/request_queue.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tpsim::launch::request_queue_test {

rank::GenerationRequest shape(std::uint32_t width, std::uint32_t outputs = 1) {
  rank::GenerationRequest request;
  request.width = width, request.height = 480, request.steps = 10, request.outputs = outputs;
  return request;
}

// A second a request, and half of one for each output after the first.
double price(const rank::GenerationRequest& request) { return 1 + 0.5 * (request.outputs - 1); }

TEST(RequestQueue, OneAtATimeUnlessBatched) {
  const std::vector<QueuedRequest> requests(4, {0, shape(832)});
  const auto alone = serve_queue(requests, {}, price);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(alone[i].end, static_cast<double>(i + 1));
  const auto together = serve_queue(requests, {.max_outputs = 4}, price);
  for (const ServedRequest& s : together) {
    EXPECT_DOUBLE_EQ(s.end, 2.5);
    EXPECT_EQ(s.batch, 4U);
  }
}

TEST(RequestQueue, OnlyEqualShapesGoTogetherAndOthersKeepTheirPlace) {
  const std::vector<QueuedRequest> requests = {
      {0, shape(832)}, {0, shape(1280)}, {0, shape(832)}, {0, shape(832, 2)}};
  const auto served = serve_queue(requests, {.max_outputs = 2}, price);
  EXPECT_DOUBLE_EQ(served[0].end, 1.5);
  EXPECT_DOUBLE_EQ(served[2].end, 1.5);
  EXPECT_DOUBLE_EQ(served[1].end, 2.5);
  EXPECT_EQ(served[3].batch, 1U);
}

TEST(RequestQueue, TheFirstWaitsForOthersNoLongerThanTheDelay) {
  const std::vector<QueuedRequest> requests = {{1, shape(832)}, {1.05, shape(832)}, {1.2, shape(832)}};
  const auto served = serve_queue(requests, {.max_outputs = 3, .delay_seconds = 0.1}, price);
  EXPECT_NEAR(served[0].start, 1.1, 1e-12);
  EXPECT_NEAR(served[1].start, 1.1, 1e-12);
  EXPECT_NEAR(served[2].start, 2.6, 1e-12);  // when the batch before has ended
  // A batch that is full waits for nobody.
  EXPECT_DOUBLE_EQ(serve_queue(requests, {.max_outputs = 2, .delay_seconds = 9}, price)[0].start, 1.05);
}

TEST(RequestQueue, ReplicasTakeTurnsAndClientsKeepTheirBound) {
  const std::vector<QueuedRequest> requests(6, {0, shape(832)});
  const auto served = serve_queue(requests, {.replicas = 2}, price);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(served[i].replica, i % 2);
    EXPECT_DOUBLE_EQ(served[i].end, static_cast<double>(i / 2 + 1));
  }
  for (const ServedRequest& s : serve_queue(requests, {.max_concurrency = 1}, price))
    EXPECT_DOUBLE_EQ(s.end - s.arrival, 1);
}

}  // namespace tpsim::launch::request_queue_test
