/* fibers.cpp - see fibers.h. Going from one stack to another is a dozen instructions on x86-64: what a function must keep is pushed, the
 * stack pointer is exchanged, and what the other one kept is popped. Elsewhere the C library does it, with a system call each time. */
#include "tests/emulated/fibers.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define TELL_SANITIZER 1
#else
#define TELL_SANITIZER 0
#endif

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace emulated
{

enum { STACK_BYTES = 256 << 10, GUARD_BYTES = 64 << 10 };

struct context {
#ifdef __x86_64__
    void *stack_pointer;
#else
    ucontext_t of_library;
#endif
    void *fake_stack; /* the sanitizer's */
    const void *bottom;
    size_t n_bytes;
};

struct fiber {
    context at;
    uint8_t *stack;
    void (*begin)(void);
};

static context scheduler;
static fiber *running;
static std::vector<fiber *> &idle = *new std::vector<fiber *>(); /* there until the process is over, as stacks are */

#ifdef __x86_64__
extern "C" void emulated_exchange(void **kept, void *entered);
asm(".text\n"
    ".globl emulated_exchange\n"
    ".hidden emulated_exchange\n"
    ".type emulated_exchange,@function\n"
    "emulated_exchange:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size emulated_exchange,.-emulated_exchange\n");
#endif

static void exchange(context *from, context *to, bool for_good)
{
#if TELL_SANITIZER
    __sanitizer_start_switch_fiber(for_good ? NULL : &from->fake_stack, to->bottom, to->n_bytes);
#else
    (void)for_good;
#endif
#ifdef __x86_64__
    emulated_exchange(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->of_library, &to->of_library);
#endif
#if TELL_SANITIZER
    /* the next kernel may run on another thread of the host, with another stack */
    const bool is_scheduler = from == &scheduler;
    __sanitizer_finish_switch_fiber(from->fake_stack, is_scheduler ? NULL : &scheduler.bottom, is_scheduler ? NULL : &scheduler.n_bytes);
#endif
}

static void first_steps(void)
{
#if TELL_SANITIZER
    __sanitizer_finish_switch_fiber(NULL, &scheduler.bottom, &scheduler.n_bytes);
#endif
    running->begin();
    abort(); /* it ends with end_fiber */
}

/* A fiber's first entry pops zeros, and returns to first_steps. */
static void prepare(fiber *f)
{
    f->at.bottom = f->stack, f->at.n_bytes = STACK_BYTES, f->at.fake_stack = NULL;
#ifdef __x86_64__
    void **top = (void **)(f->stack + STACK_BYTES);
    *--top = NULL; /* as if first_steps had been called: a return address, followed by a multiple of 16 */
    *--top = (void *)first_steps;
    for (int i = 0; i < 6; i++) *--top = NULL;
    f->at.stack_pointer = top;
#else
    getcontext(&f->at.of_library);
    f->at.of_library.uc_stack.ss_sp = f->stack;
    f->at.of_library.uc_stack.ss_size = STACK_BYTES;
    makecontext(&f->at.of_library, first_steps, 0);
#endif
#if TELL_SANITIZER
    __asan_unpoison_memory_region(f->stack, STACK_BYTES);
#endif
}

fiber *take_fiber(void (*begin)(void))
{
    fiber *f;
    if (!idle.empty()) {
        f = idle.back();
        idle.pop_back();
    } else {
        f = new fiber();
        uint8_t *const memory =
            (uint8_t *)mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE) != 0) {
            fprintf(stderr, "emulated device: no memory for the stack of a thread\n");
            abort();
        }
        f->stack = memory + GUARD_BYTES;
    }
    f->begin = begin;
    prepare(f);
    return f;
}

void enter_fiber(fiber *f)
{
    running = f;
    exchange(&scheduler, &f->at, false);
    running = NULL;
}

void leave_fiber(void) { exchange(&running->at, &scheduler, false); }

void end_fiber(void)
{
    idle.push_back(running); /* entered again after this one has left it */
    exchange(&running->at, &scheduler, true);
    abort();
}

void drop_fiber(fiber *f) { idle.push_back(f); }

} // namespace emulated
