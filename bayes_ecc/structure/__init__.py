"""Structure: partitions of queries, how consistent and how far apart their clusters are.

Hard measures put each query into its most responsible cluster; soft ones weigh it by its
responsibilities; those of a posterior are made draw by draw, whatever its clusters are numbered.
"""

from bayes_ecc.structure.agreement import (
    PartitionAgreement,
    compare_partitions,
    overlap_matrix,
    partition_agreement,
)
from bayes_ecc.structure.cells import changed_cells, typical_queries
from bayes_ecc.structure.co_clustering import co_clustering, co_clustering_by_label
from bayes_ecc.structure.drawn import consensus_partition
from bayes_ecc.structure.partitions import (
    Partition,
    PartitionLike,
    hard_partition,
    read_partition,
)
from bayes_ecc.structure.posterior_structure import structure_draws, summarize_structure
from bayes_ecc.structure.profiles import (
    cluster_profiles,
    cross_cluster_gap,
    profile_similarity,
    within_cluster_tau,
)

__all__ = [
    "Partition",
    "PartitionAgreement",
    "PartitionLike",
    "changed_cells",
    "cluster_profiles",
    "co_clustering",
    "co_clustering_by_label",
    "compare_partitions",
    "consensus_partition",
    "cross_cluster_gap",
    "hard_partition",
    "overlap_matrix",
    "partition_agreement",
    "profile_similarity",
    "read_partition",
    "structure_draws",
    "summarize_structure",
    "typical_queries",
    "within_cluster_tau",
]
