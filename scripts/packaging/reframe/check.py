"""ReFrame check: the installed mpi-ustat finds the same number on 1, 2 and 4 ranks; its time is recorded.

reframe -C SITE_SETTINGS -c scripts/packaging/reframe/check.py -r
"""

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, performance_function, run_before, sanity_function

POINTS = '{ print (i * 7919) % 10007 + 2000 * (i % 3 == 0) "," (i % 3 == 0) }'


@rfm.simple_test
class EstimateCheck(rfm.RunOnlyRegressionTest):
    """An AUC from four partitions over 50 workers of 20 000 rows that awk makes."""

    descr = "mpi-ustat estimate over the ranks of a job"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    ranks = parameter([1, 2, 4])
    prerun_cmds = [
        "echo score,label > scores.csv",
        f"awk 'BEGIN {{ for (i = 0; i < 20000; i++) {POINTS} }}' >> scores.csv",
    ]
    executable = "mpi-ustat"
    executable_opts = [
        *("estimate", "scores.csv", "--label", "label", "--positive", "1", "--columns", "score"),
        *("--workers", "50", "--rounds", "4", "--seed", "1", "--timeout", "300", "--json"),
    ]

    @run_before("run")
    def over_ranks(self):
        self.num_tasks = self.ranks

    @sanity_function
    def finds_the_number(self):
        return sn.all(
            [
                sn.assert_found(r'"estimate": 0\.6802062971893994,', self.stdout),
                sn.assert_found(rf'"n_ranks": {self.ranks},', self.stdout),
            ]
        )

    @performance_function("s")
    def evaluation(self):
        return sn.extractsingle(r'"evaluate": ([0-9.e-]+)', self.stdout, 1, float)
