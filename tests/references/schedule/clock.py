"""When a forward pass ends, on a clock that tpsim and SGLang's scheduler share.

tpsim's engine (scheduler/engine.cc): a pass starts when the one before has ended and the host has spent
scheduler_step_seconds on it; with overlap scheduling the host goes on after that time, without it waits.
"""


class StepTimes:
    """The step times of tpsim's steps.csv: requests then arrive at the same step on both sides."""

    scheduler_step_seconds = 0.001  # of tpsim's hardware catalogue

    def __init__(self, ends):
        self.ends = ends

    def end_of_step(self, number, now, extend_tokens, decode_requests):
        return self.ends[number] if number < len(self.ends) else now + 0.01


class TickTimes:
    """A step-time function of the batch alone, for recordings. All times are whole ticks of 2^-20 s, so that sums
    are exact in binary and both sides get the same bits."""

    tick = 2.0**-20
    scheduler_step_seconds = 1024 * tick

    def __init__(self):
        self.device_free = 0.0

    def end_of_step(self, number, now, extend_tokens, decode_requests):
        ticks = 2048 + 20 * extend_tokens + 50 * decode_requests
        self.device_free = max(self.device_free, now + self.scheduler_step_seconds) + ticks * self.tick
        return self.device_free


class PipelineTicks(TickTimes):
    """The same with pipeline stages (scheduler/replica.h): a stage takes 256 ticks more than the one before,
    sends for 64 and gathers for 32."""

    send, receive = 64 * TickTimes.tick, 32 * TickTimes.tick
    not_before = 0.0  # told before every pass

    def __init__(self, stages):
        self.free = [0.0] * stages

    def end_of_step(self, number, now, extend_tokens, decode_requests):
        ticks = 2048 + 20 * extend_tokens + 50 * decode_requests
        issued, there = now + self.scheduler_step_seconds, self.not_before
        for stage, free in enumerate(self.free):
            if stage > 0:
                issued, there = issued + self.scheduler_step_seconds, there + self.receive
            done = max(free, issued, there) + (ticks + 256 * stage) * self.tick
            there = done + self.send
            self.free[stage] = there if stage + 1 < len(self.free) else done
        return there
