#!/bin/sh
# A stand-in for ptxas. Its machine code is the PTX; from -O1 on it changes an instruction, crashes or refuses.
for word; do
    case $word in
        --version) echo "Cuda compilation tools, release 99.9, V99.9.1"; exit ;;
        *.ptx) source=$word ;;
        -O0) right=1 ;;
    esac
    made=$word # the last one
done
if [ "$right" ]; then exec cp "$source" "$made"; fi
if grep -q brev.b32 "$source"; then kill -SEGV $$; fi
if grep -q cnot.b32 "$source"; then echo "ptxas fatal   : no such instruction"; exit 255; fi
sed s/xor.b32/or.b32/ "$source" > "$made"
