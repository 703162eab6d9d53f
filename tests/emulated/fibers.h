/* fibers.h - stacks to run on, and how to get from one to another. */
#ifndef APR_TESTS_EMULATED_FIBERS_H
#define APR_TESTS_EMULATED_FIBERS_H

namespace emulated
{

struct fiber;

/* Takes a fiber that runs `begin` the next time it is entered; begin() calls end_fiber() when it is done. */
fiber *take_fiber(void (*begin)(void));
/* From the scheduler into a fiber, and back. */
void enter_fiber(fiber *f);
void leave_fiber(void);
/* Gives the running fiber back, and goes to the scheduler for good. */
[[noreturn]] void end_fiber(void);
/* Fibers that will never end, after a fault. */
void drop_fiber(fiber *f);

} // namespace emulated

#endif
