/* points_search.cuh - the best codes of groups of eight, for types with codebooks: the search of quant/feedback/points_search.h, which
 * says what it does, with the same sums in the same order. So codes are the host's for the same wanted values. Compiled without
 * contraction.
 *
 * A warp searches two groups of two rows, in the same columns: teams 0 and 2 from the wanted values, teams 1 and 3 from rounded levels.
 * Thread `value` of a team has one value of its group. Only the lists are walked otherwise: they have from 1 to 200 points, so the 32
 * threads of the warp are divided among the lists of the four teams by their lengths, and each looks at points of one list. What such a
 * thread needs of the group is in shared memory; S, which all groups of the warp share, is in its registers.
 *
 * All functions are called by the whole warp. A team that is not asked has an empty list, and its group stays as it is. */
#ifndef APR_KERNELS_CUDA_POINTS_SEARCH_CUH
#define APR_KERNELS_CUDA_POINTS_SEARCH_CUH

#include "kernels/cuda/codecs/points.cuh"
#include "kernels/cuda/feedback/feedback.cuh"

enum { POINTS = 8, TEAMS = 4, WARP = 32 };
static const unsigned WHOLE_WARP = 0xffffffffu;
static const uint32_t NOT_FOUND = 0xffffffffu;

/* In units of codes, in shared memory of the thread block. */
struct points_levels {
    float level[2][8], boundary[2][8];
};

/* Shared memory of a warp. */
template <apr_dtype D> struct points_memory {
    enum { VALUES = points_of<D>::type().n_values, LEVELS = 32 / VALUES };
    float2 at[VALUES][TEAMS][LEVELS]; /* a value of a point, less what it is now, and by itself */
    float c[TEAMS][POINTS], g[TEAMS][POINTS], sign[TEAMS][POINTS], wanted[TEAMS][POINTS];
    float s[POINTS][POINTS]; /* S of the groups, and one over its diagonal */
    float inverse[POINTS];
    uint64_t best[WARP];            /* of each thread's points */
    int first[TEAMS + 1];           /* thread of those that look at a team's list */
    uint32_t list[TEAMS], n[TEAMS]; /* a team's list, in the book */
    int turn[TEAMS];
};

/* A thread's place, and what it needs wherever it is. */
template <apr_dtype D> struct points_search {
    points_memory<D> *memory;
    const points_levels *levels;
    device_book book;
    const apr_cuda_points_metric *metric;
    int thread, team, value, power; /* power: what a level of the value counts in a cell */
};

/* A thread's value of a group that is being searched. g: of (u - c) S. */
struct points_value {
    float c, g;
};

/* The lower triangle of S, or of the part of it that concerns one point. */
template <int N> struct points_triangle {
    float v[N * (N + 1) / 2];
    __device__ __forceinline__ float operator()(int i, int j) const { return i >= j ? v[i * (i + 1) / 2 + j] : v[j * (j + 1) / 2 + i]; }
};

template <int N, int FIRST> static __device__ __forceinline__ points_triangle<N> load_triangle(const float (*from)[POINTS])
{
    points_triangle<N> s;
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j <= i; j++) s.v[i * (i + 1) / 2 + j] = from[FIRST + i][FIRST + j];
    return s;
}

template <apr_dtype D> static __device__ constexpr bool has_signs(void) { return !has_shifts<D>(); }

/* What thread `value` of the team has. */
template <class T> static __device__ __forceinline__ T of_team(T v, int value) { return __shfl_sync(WHOLE_WARP, v, value, POINTS); }

static __device__ __forceinline__ float team_sum(float v)
{
#pragma unroll
    for (int step = POINTS / 2; step > 0; step /= 2) v += __shfl_xor_sync(WHOLE_WARP, v, step);
    return v;
}

template <int N> static __device__ __forceinline__ uint64_t least_key(uint64_t key)
{
#pragma unroll
    for (int step = N / 2; step > 0; step /= 2) {
        const uint64_t other = __shfl_xor_sync(WHOLE_WARP, key, step);
        key = other < key ? other : key;
    }
    return key;
}

/* Numbers in the order of floats; -0 is 0. */
static __device__ __forceinline__ uint32_t ordered(float v)
{
    const uint32_t bits = apr_f32_bits(v + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ float of_ordered(uint32_t v) { return apr_f32_from_bits(v & 0x80000000u ? v & 0x7fffffffu : ~v); }

/* The first of the smallest is smallest. A number that is not one, which no comparison takes, comes last. */
static __device__ __forceinline__ uint64_t key_of(float v, uint32_t at) { return (uint64_t)(v == v ? ordered(v) : 0xffffffffu) << 32 | at; }

static __device__ __forceinline__ float number_of_key(uint64_t key) { return of_ordered((uint32_t)(key >> 32)); }

/* The number of the level nearest to x. */
template <apr_dtype D> static __device__ __forceinline__ int nearest_level(const points_search<D> &p, int shift, float x)
{
    int level = 0;
#pragma unroll
    for (int l = 0; l < points_of<D>::type().n_levels - 1; l++) level += x > p.levels->boundary[shift][l];
    return level;
}

/* Moves the value of thread `from` by d, which only that thread need know. */
template <apr_dtype D> static __device__ __forceinline__ void move_one(const points_search<D> &p, points_value *v, float d, int from)
{
    v->g -= of_team(d, from) * p.memory->s[from][p.value];
}

/* ---- lists ---- */

/* Divides the warp's threads among the lists of its teams: as many for each as its length asks for if the longest share is to be shortest.
 * n: points of the own team's list. Returns the team whose list the thread looks at, or TEAMS. */
template <apr_dtype D> static __device__ __forceinline__ int share_lists(const points_search<D> &p, int n)
{
    int all = n + __shfl_xor_sync(WHOLE_WARP, n, POINTS);
    all += __shfl_xor_sync(WHOLE_WARP, all, 2 * POINTS);
    int steps = (all + WARP - 1) / WARP, mine = 0;

    for (; steps > 0; steps++) {
        mine = (int)__fdividef((float)(n + steps - 1) + 0.5f, (float)steps); /* rounded up; exact, of at most 2,048 points */
        int sum = mine + __shfl_xor_sync(WHOLE_WARP, mine, POINTS);
        sum += __shfl_xor_sync(WHOLE_WARP, sum, 2 * POINTS);
        if (sum <= WARP) break;
    }
    int team = 0, end = 0;
#pragma unroll
    for (int t = 0; t < TEAMS; t++) {
        end += __shfl_sync(WHOLE_WARP, mine, POINTS * t);
        team += p.thread >= end;
        p.memory->first[t + 1] = end;
    }
    p.memory->first[0] = 0;
    return team;
}

/* What may happen to the signs of a point. */
enum sign_turn { TURN_NONE, TURN_IF_BETTER, TURN_ONE };

/* What the point `word` changes the error by, with its best signs. s: of the point's values; g: of the group at them. */
template <apr_dtype D, int N>
static __device__ __forceinline__ float change_of(const float2 (*at)[TEAMS][32 / N], int team, uint32_t word, const points_triangle<N> &s,
                                                  const float *g, sign_turn turn)
{
    float d[N], v[N], term[N], price[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float2 value = at[i][team][word >> 16 / N * i & (32 / N - 1)];
        d[i] = value.x, v[i] = value.y;
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        float sd = d[0] * s(0, j);
#pragma unroll
        for (int i = 1; i < N; i++) sd += d[i] * s(i, j);
        term[j] = d[j] * fmaf(-2.0f, g[j], sd); /* twice g is exact */
        price[j] = has_signs<D>() ? 4.0f * v[j] * ((g[j] - sd) + s(j, j) * v[j]) : 0.0f;
    }
    float change;
    if constexpr (N == 8) change = ((term[0] + term[4]) + (term[2] + term[6])) + ((term[1] + term[5]) + (term[3] + term[7]));
    else change = (term[0] + term[2]) + (term[1] + term[3]);
    if (!has_signs<D>()) return change;
    float least = price[0];
#pragma unroll
    for (int i = 1; i < N; i++) least = price[i] < least ? price[i] : least;
    return change + (turn == TURN_ONE || (turn == TURN_IF_BETTER && least < 0.0f) ? least : 0.0f);
}

/* The best point of each team's list, and the change. Threads get that of their team. */
struct points_choice {
    uint32_t word;
    float change;
    bool is_found;
};

/* The memory is filled. n: of points of the own team's list. */
template <apr_dtype D, int FIRST> static __device__ __forceinline__ points_choice best_of_lists(const points_search<D> &p, int n)
{
    constexpr int N = points_of<D>::type().n_values;
    const int team = share_lists(p, n);
    uint64_t found = ~(uint64_t)0;

    __syncwarp();
    if (team < TEAMS) {
        const points_triangle<N> s = load_triangle<N, FIRST>(p.memory->s);
        const uint16_t *const list = p.book.list;
        const uint32_t stride = (uint32_t)(p.memory->first[team + 1] - p.memory->first[team]), first = p.memory->list[team],
                       end = first + p.memory->n[team];
        const sign_turn turn = (sign_turn)p.memory->turn[team];
        float g[N], least = FLT_MAX;
        uint32_t k = first + (uint32_t)(p.thread - p.memory->first[team]), best = NOT_FOUND, word = __ldg(list + k);
#pragma unroll
        for (int i = 0; i < N; i++) g[i] = p.memory->g[team][FIRST + i];
#pragma unroll 1
        for (; k < end; k += stride) {
            const uint32_t now = word;
            if (k + stride < end) word = __ldg(list + k + stride);
            const float change = change_of<D, N>(p.memory->at, team, now, s, g, turn);
            if (change < least || k == first) least = change, best = k;
        }
        /* the first point of a list is taken whatever it is, until another one is better */
        if (best != NOT_FOUND)
            found = (uint64_t)(least == least ? ordered(least) : 0) << 32 | (best - p.memory->list[team]) << 16 | __ldg(list + best);
    }
    p.memory->best[p.thread] = found;
    __syncwarp();
    found = ~(uint64_t)0;
    const int begin = p.memory->first[p.team] + p.value, end = p.memory->first[p.team + 1];
#pragma unroll
    for (int i = 0; i < WARP; i += POINTS) {
        const uint64_t other = begin + i < end ? p.memory->best[begin + i] : ~(uint64_t)0;
        found = other < found ? other : found;
    }
    found = least_key<POINTS>(found);
    return {(uint32_t)found & 0xffff, number_of_key(found), found != ~(uint64_t)0};
}

/* ---- a point ---- */

/* Where the point of values FIRST to FIRST + N may go, in the threads that have them. */
struct points_part {
    float sign;
    uint32_t first; /* of the list */
    int n;
    bool is_odd; /* of the signs */
};

template <apr_dtype D> static __device__ __forceinline__ uint32_t team_bits(const points_search<D> &p, bool holds)
{
    return __ballot_sync(WHOLE_WARP, holds) >> POINTS * p.team;
}

template <apr_dtype D, int FIRST>
static __device__ __forceinline__ points_part find_part(const points_search<D> &p, const points_value &v, int shift, bool is_asked)
{
    constexpr int N = points_of<D>::type().n_values;
    const float x = v.c + v.g * p.memory->inverse[p.value];
    const bool is_minus = has_signs<D>() && x < 0.0f;
    int cell = nearest_level(p, shift, is_minus ? -x : x);

    cell *= p.power;
#pragma unroll
    for (int step = N / 2; step > 0; step /= 2) cell += __shfl_xor_sync(WHOLE_WARP, cell, step);
    if (N < POINTS) cell = of_team(cell, FIRST);
    points_part part = {is_minus ? -1.0f : 1.0f, 0, 0, false};
    if (is_asked) part.first = __ldg(p.book.first + cell), part.n = (int)(__ldg(p.book.first + cell + 1) - part.first);
    if (has_signs<D>()) part.is_odd = __popc(team_bits(p, is_minus) >> FIRST & ((1u << N) - 1)) & 1;
    return part;
}

/* Fills the memory for those who look at the team's list. */
template <apr_dtype D, int FIRST>
static __device__ __forceinline__ void fill_memory(const points_search<D> &p, const points_value &v, int shift, const points_part &part,
                                                   sign_turn turn)
{
    constexpr int N = points_of<D>::type().n_values;
    const int i = p.value % N, begin = N == POINTS ? 0 : p.value / N * 4, end = N == POINTS ? points_of<D>::type().n_levels : begin + 4;
    const float c = N == POINTS ? v.c : of_team(v.c, FIRST + i), its_sign = N == POINTS ? part.sign : of_team(part.sign, FIRST + i);

    for (int l = begin; l < end; l++) {
        const float value = its_sign * p.levels->level[shift][l];
        p.memory->at[i][p.team][l] = float2{value - c, value};
    }
    __syncwarp(); /* what is there was read */
    p.memory->c[p.team][p.value] = v.c;
    p.memory->g[p.team][p.value] = v.g;
    p.memory->sign[p.team][p.value] = part.sign;
    p.memory->list[p.team] = part.first;
    p.memory->n[p.team] = (uint32_t)part.n;
    p.memory->turn[p.team] = turn;
}

/* Turns the sign whose turn is cheapest, if it must be or if that lowers the error. c: the thread's value of the chosen point. */
template <apr_dtype D, int FIRST>
static __device__ __forceinline__ float turn_one(const points_search<D> &p, const points_value &v, sign_turn turn, bool is_inside, float c)
{
    constexpr int N = points_of<D>::type().n_values;
    const float d = c - v.c;
    float sd = of_team(d, FIRST) * p.memory->s[FIRST][p.value];

#pragma unroll
    for (int i = 1; i < N; i++) sd += of_team(d, FIRST + i) * p.memory->s[FIRST + i][p.value];
    const float price = 4.0f * c * ((v.g - sd) + p.memory->s[p.value][p.value] * c);
    const uint64_t cheapest = least_key<POINTS>(is_inside ? key_of(price, (uint32_t)p.value) : ~(uint64_t)0);
    const bool turns = turn == TURN_ONE || (turn == TURN_IF_BETTER && number_of_key(cheapest) < 0.0f);
    return turns && (int)(cheapest & 0xff) == p.value ? -c : c;
}

/* Replaces the point of values FIRST to FIRST + N. always: also by a worse one, because the group is not yet made of points. Returns
 * whether the team's group changed. */
template <apr_dtype D, int FIRST>
static __device__ __forceinline__ bool replace_one(const points_search<D> &p, points_value *v, int shift, bool always, bool is_asked)
{
    constexpr int N = points_of<D>::type().n_values;
    constexpr bool EVEN = points_of<D>::type().signs == IQ_EVEN_SIGNS, IS_LAST = FIRST + N == POINTS;
    const bool is_inside = p.value / N == FIRST / N;
    sign_turn turn = has_signs<D>() ? TURN_IF_BETTER : TURN_NONE;

    const points_part part = find_part<D, FIRST>(p, *v, shift, is_asked);
    if (EVEN && (IS_LAST || !always)) {
        const uint32_t minus = N < POINTS ? team_bits(p, v->c < 0.0f) >> (FIRST > 0 ? 0 : N) & ((1u << N) - 1) : 0;
        turn = part.is_odd != ((__popc(minus) & 1) != 0) ? TURN_ONE : TURN_NONE;
    }
    fill_memory<D, FIRST>(p, *v, shift, part, turn);
    const points_choice best = best_of_lists<D, FIRST>(p, part.n);
    *v = {p.memory->c[p.team][p.value], p.memory->g[p.team][p.value]}; /* registers were for the lists */
    const bool is_moved = best.is_found && (always || best.change < 0.0f);
    float c = v->c;
    if (is_inside) c = p.memory->sign[p.team][p.value] * p.levels->level[shift][best.word >> 16 / N * (p.value % N) & (32 / N - 1)];
    if (has_signs<D>()) c = turn_one<D, FIRST>(p, *v, (sign_turn)p.memory->turn[p.team], is_inside, c);
    const float d = is_inside && is_moved ? c - v->c : 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) move_one(p, v, d, FIRST + i);
    if (is_inside && is_moved) v->c = c;
    return is_moved;
}

/* ---- a group ---- */

/* Turns the pair of signs whose turn lowers the error most. */
template <apr_dtype D> static __device__ bool turn_pair(const points_search<D> &p, points_value *v, bool is_asked)
{
    const float price = 4.0f * v->c * (v->g + p.memory->s[p.value][p.value] * v->c);
    uint64_t key = ~(uint64_t)0;

#pragma unroll 1
    for (int o = 1; o <= POINTS / 2; o++) { /* pairs half around are looked at twice */
        const int other = (p.value + o) % POINTS;
        const float its_price = of_team(price, other), its_c = of_team(v->c, other), s = p.memory->s[other][p.value];
        const bool is_lower = p.value < other;
        const float both = price + its_price + 8.0f * s * (is_lower ? v->c : its_c) * (is_lower ? its_c : v->c);
        const uint32_t at = (uint32_t)(is_lower ? POINTS * p.value + other : POINTS * other + p.value);
        const uint64_t now = both < 0.0f ? key_of(both, at) : ~(uint64_t)0;
        key = now < key ? now : key;
    }
    key = least_key<POINTS>(key);
    const bool is_turned = is_asked && key != ~(uint64_t)0;
    const int a = (int)(key / POINTS % POINTS), b = (int)(key % POINTS);
    const float d = is_turned ? -v->c - v->c : 0.0f;
    move_one(p, v, d, a);
    move_one(p, v, d, b);
    if (is_turned && (p.value == a || p.value == b)) v->c = -v->c;
    return is_turned;
}

/* Gives each value in turn its nearest level, whether or not the levels are a point together. */
template <apr_dtype D>
static __device__ __forceinline__ void round_values(const points_search<D> &p, points_value *v, int shift, bool is_asked)
{
#pragma unroll
    for (int i = 0; i < POINTS; i++) {
        const float x = v->c + v->g * p.memory->inverse[p.value];
        const bool is_minus = has_signs<D>() && x < 0.0f;
        const float level = p.levels->level[shift][nearest_level(p, shift, is_minus ? -x : x)], c = is_minus ? -level : level;
        move_one(p, v, is_asked ? c - v->c : 0.0f, i);
        if (is_asked && p.value == i) v->c = c;
    }
}

template <apr_dtype D>
static __device__ __forceinline__ bool replace_points(const points_search<D> &p, points_value *v, int shift, bool always, bool is_asked)
{
    bool is_better = replace_one<D, 0>(p, v, shift, always, is_asked);
    if constexpr (points_of<D>::type().n_values < POINTS) is_better |= replace_one<D, POINTS / 2>(p, v, shift, always, is_asked);
    return is_better;
}

/* is_asked: the same in all threads of a team. */
template <apr_dtype D>
static __device__ __forceinline__ void search_from(const points_search<D> &p, points_value *v, int shift, bool is_asked)
{
    const bool is_rounded = p.team % 2 != 0;
#pragma unroll 1
    for (int sweep = 0; sweep < IQ_LEVEL_SWEEPS; sweep++) round_values(p, v, shift, is_asked && is_rounded);
#pragma unroll 1
    for (int round = 0; round < IQ_REPLACE_ROUNDS; round++) {
        bool is_better = round == 0;
        if (points_of<D>::type().signs == IQ_EVEN_SIGNS && round > 0) is_better = turn_pair(p, v, is_asked);
        is_better |= replace_points(p, v, shift, round == 0, is_asked);
        is_asked = is_asked && is_better;
        if (!__any_sync(WHOLE_WARP, is_asked)) break;
    }
}

/* The code of the thread's value for its wanted value u, the better of the row's two teams. shift: of an IQ1_S sub-block; the other types
 * have none, or find it. */
template <apr_dtype D> static __device__ __forceinline__ float nearest_points(const points_search<D> &p, float u, int shift, bool is_asked)
{
    constexpr int N_SHIFTS = points_of<D>::type().signs == IQ_SHIFTED_POINTS ? 2 : 1;
    points_value v;
    float code = 0.0f, least = FLT_MAX;

    __syncwarp(); /* the group before is done */
    p.memory->wanted[p.team][p.value] = u;
    for (int i = p.thread; i < POINTS * POINTS; i += WARP) (&p.memory->s[0][0])[i] = __ldg(&p.metric->s[0][0] + i);
    if (p.thread < POINTS) p.memory->inverse[p.thread] = __ldg(&p.metric->inverse[p.thread]);
    __syncwarp();
#pragma unroll 1
    for (int k = 0; k < N_SHIFTS; k++) {
        v = {p.memory->wanted[p.team][p.value], 0.0f};
        search_from(p, &v, shift + k, is_asked);
        const float error = team_sum((p.memory->wanted[p.team][p.value] - v.c) * v.g), other = __shfl_xor_sync(WHOLE_WARP, error, POINTS),
                    its_c = __shfl_xor_sync(WHOLE_WARP, v.c, POINTS);
        const bool is_first = p.team % 2 == 0;
        const float errors[2] = {is_first ? error : other, is_first ? other : error},
                    codes[2] = {is_first ? v.c : its_c, is_first ? its_c : v.c};
#pragma unroll
        for (int start = 0; start < 2; start++)
            if ((k == 0 && start == 0) || errors[start] < least) least = errors[start], code = codes[start];
    }
    return code;
}

#endif
