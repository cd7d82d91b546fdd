"""Fuzzing for a given time: `make fuzz MINUTES=10`, or `python -m tests.fuzz --minutes 10 --only gradients`.

Each batch runs in a process of its own, so that a crash or a hang is a finding, too. The report is written as it grows.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 1200  # seconds that a batch may take
LAWS = ("Soft", "LCP", "NCP", "Soft CG", "Impact", "Maximal", "Adaptive")
BATCHES = {
    "files": """
from tests.fuzz import files
found, count = files.tally({seed}, 500, 10)
count = count._asdict()
""",
    "calls": """
from tests.fuzz import calls
found = calls.run({seed}, 500)
count = {{"calls": 500}}
""",
    "gradients": """
from tests.fuzz import gradients
found, count = gradients.examine({seed} // {laws}, {law!r})
count = count._asdict()
""",
    "physics": """
from tests.fuzz import physics
found, count = physics.examine({seed} // {laws}, {law!r})
count = count._asdict()
""",
}
FRAME = """
import json, os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
import jax
jax.config.update("jax_enable_x64", True)
{batch}
print("REPORT" + json.dumps([count, [list(finding) for finding in found]]))
"""


def batch(part: str, seed: int) -> tuple[dict, list]:
    """Counts and findings of one batch."""
    code = FRAME.format(batch=BATCHES[part].format(seed=seed, law=LAWS[seed % len(LAWS)], laws=len(LAWS)))
    where = f"{part}, seed {seed}"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return {}, [[where, f"hung for {PATIENCE} s"]]
    lines = [line for line in done.stdout.splitlines() if line.startswith("REPORT")]
    if not lines:
        return {}, [[where, f"ended with {done.returncode}: {done.stderr[-600:]}"]]
    count, found = json.loads(lines[-1].removeprefix("REPORT"))
    return count, found


def main() -> int:
    """Run batches in turn until time is over; the exit status says whether something was found."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", default=",".join(BATCHES), help="parts, separated by commas")
    parser.add_argument("--seed", type=int, default=0, help="of the first batch; each next one counts up")
    parser.add_argument("--report", type=Path, default=Path("out/fuzz.json"))
    given = parser.parse_args()
    parts, findings = given.only.split(","), []
    counts = {part: {} for part in parts}
    end, seed = time.monotonic() + 60 * given.minutes, given.seed
    given.report.parent.mkdir(parents=True, exist_ok=True)
    while time.monotonic() < end:
        for part in parts:
            count, found = batch(part, seed)
            for name, n in count.items():
                counts[part][name] = counts[part].get(name, 0) + n
            findings += [[part, *finding] for finding in found]
            left = max(0.0, end - time.monotonic()) / 60
            print(f"{part} {seed}: {counts[part]}, {len(findings)} findings, {left:.0f} min left", flush=True)
            for finding in found:
                print("  " + ": ".join(finding), flush=True)
            report = {"seed": given.seed, "last": [part, seed], "counts": counts, "findings": findings}
            given.report.write_text(json.dumps(report))
        seed += 1
    for part in parts:
        print(f"{part}: {counts[part]}, {sum(finding[0] == part for finding in findings)} findings")
    print(f"report in {given.report}; go on with --seed {seed}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
