# What C++ has no syntax for, line by line, so that line numbers stay:
#   kernel<<<blocks, threads, n_shared, stream>>>(args)  becomes  emulated::on(kernel, blocks, threads, n_shared, stream)(args)
#   extern __shared__ T name[];                          becomes  a pointer to the block's dynamic shared memory
#   __shared__ T name...;                                becomes  a reference to memory that each block has of its own; or two of them
s/([A-Za-z_][A-Za-z_0-9.]*(<[^<>()]*>)?)<<</emulated::on(\1, /
s/>>>\(/)(/
s/^( *)extern __shared__ (__align__\([0-9]+\) )?([a-z0-9_]+) ([a-z0-9_]+)\[\];/\1\3 *const \4 = (\3 *)emulated::dynamic_memory();/
s/^( *)__shared__ ([a-z0-9_]+) ([a-z0-9_]+)([^,;]*), ([a-z0-9_]+)([^,;]*);/\1struct shared_\3 { \2 \3\4, \5\6; }; auto \&\3 = emulated::shared<shared_\3>().\3; auto \&\5 = emulated::shared<shared_\3>().\5;/
s/^( *)__shared__ ((__align__\([0-9]+\) )?[A-Za-z0-9_]+ ([a-z0-9_]+)[^,;]*;)/\1struct shared_\4 { \2 }; auto \&\4 = emulated::shared<shared_\4>().\4;/
