import sys, tempfile, shutil
from pathlib import Path
from tests.verify.synthetic import *
from tests.verify import synthetic
from verify.run import verify_run, load_rules
RULES=load_rules()
def judge(run, tables=None, base=None):
    d=Path(tempfile.mkdtemp(dir="/tmp/w")); 
    try:
        p=run.write(d, **({} if tables is None else {"tables":tables}))
        v=verify_run(p, engine="duckdb", rules=RULES)
        return v
    finally: shutil.rmtree(d)
def show(name, v):
    print("==",name, v.outcome.value, v.promises)
    for c in v.checks:
        if c.verdict.value!="pass": print("  ",c.id,c.verdict.value,c.reason,c.violations,str(c.witnesses[:1])[:300])
