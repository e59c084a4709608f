-- Distributes the tables by owner. Run it on the coordinator after the first `plant-store migrate`, before any instance
-- serves (docs/postgresql.md, "Citus"). A token is looked up before its owner is known, so each worker has all tokens.

SELECT create_distributed_table('plants', 'owner');
SELECT create_distributed_table('idempotency_keys', 'owner', colocate_with => 'plants');
SELECT create_reference_table('tokens');
SELECT create_reference_table('migrations');

-- A batch of several owners then commits once on each worker, not once on each shard.
DO $$ BEGIN
  EXECUTE format('ALTER DATABASE %I SET citus.max_adaptive_executor_pool_size = 1', current_database());
END $$;
