"""A report from the lake, with Spark SQL: which pages on which day, and by how many visitors.

python report.py /path/to/lake
"""

from __future__ import annotations

import sys

from ottla.spark.session import spark_session

REPORT = """
SELECT date, page, count(*) AS views, count(DISTINCT visitor) AS visitors
FROM views GROUP BY date, page ORDER BY date, views DESC
"""


def main(lake: str) -> None:
    session = spark_session("activity-report")
    session.read.parquet(lake).createOrReplaceTempView("views")
    session.sql(REPORT).show()
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
