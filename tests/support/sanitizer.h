/* sanitizer.h - is this build one with a sanitizer of memory or threads? It takes five to ten times as long.
 *
 * A sanitizer looks at memory and threads, not at results. So a test that goes through all families and checks bits may take some of them
 * there: its other runs see all. */
#ifndef APR_TESTS_SANITIZER_H
#define APR_TESTS_SANITIZER_H

/* gcc says so by a macro, clang by a feature. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define APR_HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define APR_HAS_SANITIZER 1
#endif
#endif
#ifndef APR_HAS_SANITIZER
#define APR_HAS_SANITIZER 0
#endif

#endif
