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
