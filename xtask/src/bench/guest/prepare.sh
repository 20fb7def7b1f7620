# Runs once in each place, in an empty folder, with probe.c on standard input: makes what the measures work on.
set -e
cat > probe.c
gcc -O2 -o probe probe.c
printf 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }\n' > hello.go
python3 - <<'END'
import zipfile

name = "sample-1.0"
files = {f"sample/module_{n}.py": "".join(f"def f{m}(x):\n    return x + {m}\n\n" for m in range(40)) for n in range(60)}
files["sample/__init__.py"] = ""
about = f"{name}.dist-info"
files[f"{about}/METADATA"] = "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n"
files[f"{about}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in files) + f"{about}/RECORD,,\n"
with zipfile.ZipFile(f"{name}-py3-none-any.whl", "w") as wheel:
    for path, text in files.items():
        wheel.writestr(path, text)
END
