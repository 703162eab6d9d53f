#!/bin/sh
# archs.sh NVCC ARCHS [FILE LIBRARY] - says for which architectures the CUDA library is built, why, and how to choose others.
# archs.sh --card - prints the compute capabilities of the GPUs here: "9.0", or nothing.
#
# ARCHS is a list such as "80 90", or "all", what a package has. Where it is empty, the library is built for the GPUs that are here, or as
# a package where none is found. The newest of the list is built as PTX as well.
# FILE gets the list; it is not written when it has it already. Then something is said only if LIBRARY is still to be built.
package='75 80 86 89 90 100 103 120 121'

# Each once, the oldest first. Drivers that do not know the question answer with other words.
cards() {
    timeout 30 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d ' ' |
        grep -xE '[0-9]+\.[0-9]' | sort -t. -k1,1n -k2,2n -u
}
# The architecture for a compute capability: its own where nvcc knows it, else the next lower one, whose PTX the driver compiles.
arch_of() { printf '%s\n' ${known:-$package} | sort -n | awk -v c="$1" '$1 >= 75 && $1 <= c {best = $1} END {print best}'; }

[ "$1" != --card ] || { cards; exit 0; }
known=$("$1" --list-gpu-code 2>/dev/null | sed -n 's/^sm_\([0-9]*\)$/\1/p')
archs= unknown=
case $2 in
all) archs=$package why='as ARCHS says' ;;
?*) archs=$2 why='as ARCHS says' ;;
'')
    found=$(cards)
    for card in $found; do
        arch=$(arch_of "${card%.*}${card#*.}")
        archs="$archs $arch"
        [ "$arch" = "${card%.*}${card#*.}" ] || unknown="$unknown $card"
    done
    case $(echo $found) in
    '') why='no GPU is found here, so as for a package; ARCHS=90 builds for one' ;;
    *' '*) why="the GPUs here have compute capabilities $(echo $found); ARCHS=all builds for a package" ;;
    *) why="the GPU here has compute capability $found; ARCHS=all builds for a package" ;;
    esac
    [ -n "$found" ] || [ ! -e /dev/nvidiactl ] || why='nvidia-smi does not say which GPU is here, so as for a package; ARCHS=90 builds for one'
    [ -z "$unknown" ] || why="$why (nvcc has no code for$unknown)"
    ;;
esac
[ -n "$(echo $archs)" ] || archs=$package
archs=$(echo $(printf '%s\n' $archs | sort -n -u))
if [ "$(cat "$3" 2>/dev/null)" != "$archs" ] && [ -n "$3" ]; then
    printf '%s\n' "$archs" >"$3"
elif [ -e "$4" ]; then
    exit 0
fi
echo "code for $archs: $why"
