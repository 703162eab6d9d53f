# FP8 weights with scales of blocks among matrices that become FP8: one layout of scales in the output, which every reader opens
for kind in fp8-block ct-fp8-block modelopt-mixed; do
    aprquant --to fp8 data/packed/$kind $kind 2>/dev/null | grep 'with FP8 block scales'
    aprquant -q --to fp8 data/packed/$kind $kind.apr >/dev/null && aprconv convert -q $kind.apr again >/dev/null || exit 1
    aprconv check $kind | grep values && aprconv diff $kind again | tail -n 1
    grep -c weight_block_size $kind/config.json
    rm -rf again
done
# what is not encoded stays as it is, and its scales with it, though their names match as well
aprquant -q --to bf16 --tensor 'o_proj=fp8' data/packed/fp8-block kept >/dev/null && aprconv show kept | grep -E 'o_proj|scale_inv' && aprconv check kept | grep values
aprconv diff --json data/packed/fp8-block kept | grep -o '"name":"[^"]*o_proj[^}]*}[^}]*},"same_bytes":[a-z]*'
