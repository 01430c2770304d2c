PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO studies VALUES(1,'half');
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO version_info VALUES(1,12,'5.0.0');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO study_directions VALUES(1,'MINIMIZE',1,0);
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO study_user_attributes VALUES(1,1,'settings','{"schema": "tuner/study/1", "launcher": "simulated", "iterations": [2], "workload": {"model": {"name": "bloom-14336x72", "layers": 72, "hidden": 14336, "heads": 64, "vocab": 250880, "seq": 2048, "kv_heads": 64, "ffn": 57344, "head_size": 0, "gated_mlp": false, "tied_embeddings": true, "positions": "learned", "max_positions": 2048, "norm": "layernorm", "norms_per_layer": 2, "qk_norm": false, "embedding_norm": false, "final_norm": true, "qkv_bias": true, "attention_bias": true, "mlp_bias": true, "head_bias": false, "embedding_size": 14336, "vocab_multiple": 128, "frozen_params": 0}, "global_batch": 2048, "precision": "fp16", "attention": "fused", "fused_norms": true, "plain_layers": false, "parallel_loss": true, "optimizer": "adam", "tokens": 0.0, "ramp": null}, "cluster": {"name": "bloom-48", "nodes": 48, "gpus_per_node": 8, "gpu": {"name": "A100-80GB-SXM", "memory": 85899345920.0, "memory_bandwidth": 2039000000000.0, "sms": 108, "peak_flops": {"fp32": 19500000000000.0, "tf32": 156000000000000.0, "fp16": 312000000000000.0, "bf16": 312000000000000.0}, "intra_node_bandwidth": 300000000000.0, "inter_node_bandwidth": 25000000000.0, "attention": "flash2", "achievable": 0.869}, "intra_node": {"bandwidth": 300000000000.0, "latency": 3.4e-06}, "inter_node": {"bandwidth": 50000000000.0, "latency": 1.4e-05}}, "rules": {"allowed": []}, "axes": {"shape": ["14336x72"], "global_batch": [2048], "nodes": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48], "tp": [1, 2, 4, 8, 16, 32], "pp": [1, 2, 3, 4, 6, 8, 9, 12, 18, 24, 36, 37, 72, 74], "cp": [1, 2, 4, 8], "micro_batch": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32], "heads": [16, 32, 64, 112, 128, 256], "partition": ["layers", "embedding"], "vpp": [1, 2, 3, 4, 6, 8], "sequence_parallel": [false, true], "zero": [0, 1, 2, 3], "recompute": ["none", "selective", "full"], "dp": []}, "seed": 5, "drift": null}');
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO trials VALUES(1,0,1,'COMPLETE','2026-11-22 00:06:05.257498','2026-11-22 00:06:05.374353');
INSERT INTO trials VALUES(2,1,1,'COMPLETE','2026-11-22 00:06:05.455262','2026-11-22 00:06:05.586944');
INSERT INTO trials VALUES(3,2,1,'COMPLETE','2026-11-22 00:06:05.664755','2026-11-22 00:06:05.787285');
INSERT INTO trials VALUES(4,3,1,'COMPLETE','2026-11-22 00:06:05.836066','2026-11-22 00:06:05.913900');
INSERT INTO trials VALUES(5,4,1,'COMPLETE','2026-11-22 00:06:05.967561','2026-11-22 00:06:06.046219');
INSERT INTO trials VALUES(6,5,1,'COMPLETE','2026-11-22 00:06:06.100218','2026-11-22 00:06:06.182558');
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO trial_user_attributes VALUES(1,1,'key','"tp8-pp6-dp8-mbs2-z1-sp-rnone-h16"');
INSERT INTO trial_user_attributes VALUES(2,1,'why','"soonest by the estimate of what is likely to fit"');
INSERT INTO trial_user_attributes VALUES(3,1,'proposal','{"key": "tp8-pp6-dp8-mbs2-z1-sp-rnone-h16", "topology": {"nodes": 48, "tp": 8, "pp": 6, "dp": 8, "micro_batch": 2, "zero": 1, "vpp": 1, "cp": 1, "sequence_parallel": true, "recompute": "none", "partition": "layers", "heads": 16}, "candidate": 90513, "nodes": 48, "kind": "search", "repeat": 0, "setting": 0, "why": "soonest by the estimate of what is likely to fit", "estimate_sec": 77.65254420860524, "estimate_low": 67.0697160337926, "estimate_high": 89.90522069649525, "estimate_gib": null, "out_of_memory": 2.447472919862846e-10, "tag": "a2bc1fa0c121473595ee989c5bafd3c4", "worker": {"host": "vm", "pid": 24081, "born": 101192}}');
INSERT INTO trial_user_attributes VALUES(4,1,'handle','"{\"cluster\":\"simulated 5\",\"evidence\":\"\",\"folder\":\"/tmp/baseline/runs/half/jobs/0000-tp8-pp6-dp8-mbs2-z1-sp-rnone-h16\",\"measured\":[2],\"memory\":59238348907.7852,\"nodes\":48,\"order\":0,\"outcome\":\"MEASURED\",\"run\":\"cfdb100fe924b738ab5cb86b\",\"simulated\":true,\"start_up\":149.52380952380952,\"steps\":[135.6116655440977,78.97432772000894],\"stops\":364.1098027879162,\"submitted\":0.0,\"tag\":\"a2bc1fa0c121473595ee989c5bafd3c4\",\"tflops\":153.84766359596227}"');
INSERT INTO trial_user_attributes VALUES(5,1,'ending','{"outcome": "MEASURED", "objective": 789.8110279356073, "seconds": 78.97432772000894, "tflops": 153.84766359596227, "peak_memory": 59238348907.7852, "fullest": true, "iterations": [2], "reason": "", "evidence": "", "forecast": null, "held": 364.1098027879162, "node_hours": 4.854797370505549, "again": "", "clock": 364.1098027879162, "simulated": true}');
INSERT INTO trial_user_attributes VALUES(6,1,'outcome','"MEASURED"');
INSERT INTO trial_user_attributes VALUES(7,2,'key','"tp4-pp6-dp16-mbs1-z1-sp-rsel-h16"');
INSERT INTO trial_user_attributes VALUES(8,2,'why','"53% to be sooner than the best, 4.54% expected"');
INSERT INTO trial_user_attributes VALUES(9,2,'proposal','{"key": "tp4-pp6-dp16-mbs1-z1-sp-rsel-h16", "topology": {"nodes": 48, "tp": 4, "pp": 6, "dp": 16, "micro_batch": 1, "zero": 1, "vpp": 1, "cp": 1, "sequence_parallel": true, "recompute": "selective", "partition": "layers", "heads": 16}, "candidate": 88978, "nodes": 48, "kind": "search", "repeat": 0, "setting": 0, "why": "53% to be sooner than the best, 4.54% expected", "estimate_sec": 78.32766409184794, "estimate_low": 68.59416710702719, "estimate_high": 89.4423421238223, "estimate_gib": null, "out_of_memory": 0.0002862186204515919, "tag": "99d7c0cb6c634501b40b73f2ba9a0a87", "worker": {"host": "vm", "pid": 24081, "born": 101192}}');
INSERT INTO trial_user_attributes VALUES(10,2,'handle','"{\"cluster\":\"simulated 5\",\"evidence\":\"\",\"folder\":\"/tmp/baseline/runs/half/jobs/0001-tp4-pp6-dp16-mbs1-z1-sp-rsel-h16\",\"measured\":[2],\"memory\":67241412193.81752,\"nodes\":48,\"order\":1,\"outcome\":\"MEASURED\",\"run\":\"c77bc14860fd2e778acc51bc\",\"simulated\":true,\"start_up\":149.52380952380952,\"steps\":[117.72810321120703,81.30772556176132],\"stops\":348.55963829677785,\"submitted\":364.1098027879162,\"tag\":\"99d7c0cb6c634501b40b73f2ba9a0a87\",\"tflops\":150.56840781038815}"');
INSERT INTO trial_user_attributes VALUES(11,2,'ending','{"outcome": "MEASURED", "objective": 813.1470081355404, "seconds": 81.30772556176132, "tflops": 150.56840781038815, "peak_memory": 67241412193.81752, "fullest": true, "iterations": [2], "reason": "", "evidence": "", "forecast": null, "held": 348.55963829677785, "node_hours": 4.647461843957038, "again": "", "clock": 712.669441084694, "simulated": true}');
INSERT INTO trial_user_attributes VALUES(12,2,'outcome','"MEASURED"');
INSERT INTO trial_user_attributes VALUES(13,3,'key','"tp8-pp6-dp8-mbs4-z1-sp-rsel-h32"');
INSERT INTO trial_user_attributes VALUES(14,3,'why','"42% to be sooner than the best, 2.80% expected"');
INSERT INTO trial_user_attributes VALUES(15,3,'proposal','{"key": "tp8-pp6-dp8-mbs4-z1-sp-rsel-h32", "topology": {"nodes": 48, "tp": 8, "pp": 6, "dp": 8, "micro_batch": 4, "zero": 1, "vpp": 1, "cp": 1, "sequence_parallel": true, "recompute": "selective", "partition": "layers", "heads": 32}, "candidate": 90598, "nodes": 48, "kind": "search", "repeat": 0, "setting": 0, "why": "42% to be sooner than the best, 2.80% expected", "estimate_sec": 80.33157152759156, "estimate_low": 71.59452965695725, "estimate_high": 90.13483872319105, "estimate_gib": null, "out_of_memory": 0.0012477481546875999, "tag": "520a9d8e0c8f4e42b8445d341a971652", "worker": {"host": "vm", "pid": 24081, "born": 101192}}');
INSERT INTO trial_user_attributes VALUES(16,3,'handle','"{\"cluster\":\"simulated 5\",\"evidence\":\"\",\"folder\":\"/tmp/baseline/runs/half/jobs/0002-tp8-pp6-dp8-mbs4-z1-sp-rsel-h32\",\"measured\":[2],\"memory\":74456447158.02423,\"nodes\":48,\"order\":2,\"outcome\":\"MEASURED\",\"run\":\"3513ba119f37291a3b307036\",\"simulated\":true,\"start_up\":149.52380952380952,\"steps\":[224.98895968728885,79.01553310665949],\"stops\":453.52830231775783,\"submitted\":712.669441084694,\"tag\":\"520a9d8e0c8f4e42b8445d341a971652\",\"tflops\":154.93630554884663}"');
INSERT INTO trial_user_attributes VALUES(17,3,'ending','{"outcome": "MEASURED", "objective": 790.2231171515145, "seconds": 79.01553310665949, "tflops": 154.93630554884663, "peak_memory": 74456447158.02423, "fullest": true, "iterations": [2], "reason": "", "evidence": "", "forecast": null, "held": 453.52830231775783, "node_hours": 6.047044030903438, "again": "", "clock": 1166.1977434024518, "simulated": true}');
INSERT INTO trial_user_attributes VALUES(18,3,'outcome','"MEASURED"');
INSERT INTO trial_user_attributes VALUES(19,4,'key','"tp4-pp12-dp8-mbs2-z1-sp-rsel-h32"');
INSERT INTO trial_user_attributes VALUES(20,4,'why','"40% to be sooner than the best, 2.50% expected"');
INSERT INTO trial_user_attributes VALUES(21,4,'proposal','{"key": "tp4-pp12-dp8-mbs2-z1-sp-rsel-h32", "topology": {"nodes": 48, "tp": 4, "pp": 12, "dp": 8, "micro_batch": 2, "zero": 1, "vpp": 1, "cp": 1, "sequence_parallel": true, "recompute": "selective", "partition": "layers", "heads": 32}, "candidate": 89422, "nodes": 48, "kind": "search", "repeat": 0, "setting": 0, "why": "40% to be sooner than the best, 2.50% expected", "estimate_sec": 80.69247110699862, "estimate_low": 72.17558782296356, "estimate_high": 90.2143659615913, "estimate_gib": null, "out_of_memory": 0.014120797978088408, "tag": "208a3b52beac4263996cc4ced1ba8420", "worker": {"host": "vm", "pid": 24081, "born": 101192}}');
INSERT INTO trial_user_attributes VALUES(22,4,'handle','"{\"cluster\":\"simulated 5\",\"evidence\":\"\",\"folder\":\"/tmp/baseline/runs/half/jobs/0003-tp4-pp12-dp8-mbs2-z1-sp-rsel-h32\",\"measured\":[2],\"memory\":77078705854.77905,\"nodes\":48,\"order\":3,\"outcome\":\"MEASURED\",\"run\":\"11340b26d58d4b5a5d997b5d\",\"simulated\":true,\"start_up\":149.52380952380952,\"steps\":[126.4865256902531,80.69561039781031],\"stops\":356.7059456118729,\"submitted\":1166.1977434024518,\"tag\":\"208a3b52beac4263996cc4ced1ba8420\",\"tflops\":151.71054187664458}"');
INSERT INTO trial_user_attributes VALUES(23,4,'ending','{"outcome": "MEASURED", "objective": 807.0253313728191, "seconds": 80.69561039781031, "tflops": 151.71054187664458, "peak_memory": 77078705854.77905, "fullest": true, "iterations": [2], "reason": "", "evidence": "", "forecast": null, "held": 356.7059456118729, "node_hours": 4.756079274824971, "again": "", "clock": 1522.9036890143248, "simulated": true}');
INSERT INTO trial_user_attributes VALUES(24,4,'outcome','"MEASURED"');
INSERT INTO trial_user_attributes VALUES(25,5,'key','"tp8-pp6-dp8-mbs4-z1-sp-rsel-h16"');
INSERT INTO trial_user_attributes VALUES(26,5,'why','"51% to be sooner than the best, 2.39% expected"');
INSERT INTO trial_user_attributes VALUES(27,5,'proposal','{"key": "tp8-pp6-dp8-mbs4-z1-sp-rsel-h16", "topology": {"nodes": 48, "tp": 8, "pp": 6, "dp": 8, "micro_batch": 4, "zero": 1, "vpp": 1, "cp": 1, "sequence_parallel": true, "recompute": "selective", "partition": "layers", "heads": 16}, "candidate": 90586, "nodes": 48, "kind": "search", "repeat": 0, "setting": 0, "why": "51% to be sooner than the best, 2.39% expected", "estimate_sec": 78.9013466969539, "estimate_low": 73.17426173281241, "estimate_high": 85.07666989964788, "estimate_gib": null, "out_of_memory": 0.0001921917702967624, "tag": "2b280dba17ab4508851f29825e3eac94", "worker": {"host": "vm", "pid": 24081, "born": 101192}}');
INSERT INTO trial_user_attributes VALUES(28,5,'handle','"{\"cluster\":\"simulated 5\",\"evidence\":\"\",\"folder\":\"/tmp/baseline/runs/half/jobs/0004-tp8-pp6-dp8-mbs4-z1-sp-rsel-h16\",\"measured\":[2],\"memory\":74242869787.44281,\"nodes\":48,\"order\":4,\"outcome\":\"MEASURED\",\"run\":\"d14b5ddde5c15cfb93ee7d2b\",\"simulated\":true,\"start_up\":149.52380952380952,\"steps\":[189.45422907973673,78.9917369330414],\"stops\":417.96977553658763,\"submitted\":1522.9036890143248,\"tag\":\"2b280dba17ab4508851f29825e3eac94\",\"tflops\":154.98297993998847}"');
INSERT INTO trial_user_attributes VALUES(29,5,'ending','{"outcome": "MEASURED", "objective": 789.985135001, "seconds": 78.9917369330414, "tflops": 154.98297993998847, "peak_memory": 74242869787.44281, "fullest": true, "iterations": [2], "reason": "", "evidence": "", "forecast": null, "held": 417.96977553658763, "node_hours": 5.572930340487836, "again": "", "clock": 1940.8734645509123, "simulated": true}');
INSERT INTO trial_user_attributes VALUES(30,5,'outcome','"MEASURED"');
INSERT INTO trial_user_attributes VALUES(31,6,'key','"tp8-pp12-dp4-mbs2-z0-sp-rnone-h16"');
INSERT INTO trial_user_attributes VALUES(32,6,'why','"44% to be sooner than the best, 2.29% expected"');
INSERT INTO trial_user_attributes VALUES(33,6,'proposal','{"key": "tp8-pp12-dp4-mbs2-z0-sp-rnone-h16", "topology": {"nodes": 48, "tp": 8, "pp": 12, "dp": 4, "micro_batch": 2, "zero": 0, "vpp": 1, "cp": 1, "sequence_parallel": true, "recompute": "none", "partition": "layers", "heads": 16}, "candidate": 90918, "nodes": 48, "kind": "search", "repeat": 0, "setting": 0, "why": "44% to be sooner than the best, 2.29% expected", "estimate_sec": 79.86168748052539, "estimate_low": 72.95071603598603, "estimate_high": 87.42736841802818, "estimate_gib": null, "out_of_memory": 0.0062240902455846, "tag": "ce3c4ea69c7144ada256bae68efa81d8", "worker": {"host": "vm", "pid": 24081, "born": 101192}}');
INSERT INTO trial_user_attributes VALUES(34,6,'handle','"{\"cluster\":\"simulated 5\",\"evidence\":\"\",\"folder\":\"/tmp/baseline/runs/half/jobs/0005-tp8-pp12-dp4-mbs2-z0-sp-rnone-h16\",\"measured\":[2],\"memory\":73335935097.93546,\"nodes\":48,\"order\":5,\"outcome\":\"MEASURED\",\"run\":\"0eca844231fe967a75295bc4\",\"simulated\":true,\"start_up\":149.52380952380952,\"steps\":[182.93634707299762,80.35219096562494],\"stops\":412.812347562432,\"submitted\":1940.8734645509123,\"tag\":\"ce3c4ea69c7144ada256bae68efa81d8\",\"tflops\":151.2095147347389}"');
INSERT INTO trial_user_attributes VALUES(35,6,'ending','{"outcome": "MEASURED", "objective": 803.5908424372626, "seconds": 80.35219096562494, "tflops": 151.2095147347389, "peak_memory": 73335935097.93546, "fullest": true, "iterations": [2], "reason": "", "evidence": "", "forecast": null, "held": 412.812347562432, "node_hours": 5.50416463416576, "again": "", "clock": 2353.6858121133446, "simulated": true}');
INSERT INTO trial_user_attributes VALUES(36,6,'outcome','"MEASURED"');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO trial_params VALUES(1,1,'nodes',14.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, 36, 37, 48]}}');
INSERT INTO trial_params VALUES(2,1,'tp',3.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8]}}');
INSERT INTO trial_params VALUES(3,1,'pp',4.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 18, 24, 36, 37, 72]}}');
INSERT INTO trial_params VALUES(4,1,'micro_batch',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8, 16, 32]}}');
INSERT INTO trial_params VALUES(5,1,'zero',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [0, 1, 2, 3]}}');
INSERT INTO trial_params VALUES(6,1,'recompute',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "selective", "full"]}}');
INSERT INTO trial_params VALUES(7,1,'heads',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [16, 32, 64, 112, 128, 256]}}');
INSERT INTO trial_params VALUES(8,1,'vpp',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6]}}');
INSERT INTO trial_params VALUES(9,1,'sequence_parallel',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [false, true]}}');
INSERT INTO trial_params VALUES(10,1,'partition',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["layers", "embedding"]}}');
INSERT INTO trial_params VALUES(11,2,'nodes',14.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, 36, 37, 48]}}');
INSERT INTO trial_params VALUES(12,2,'tp',2.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8]}}');
INSERT INTO trial_params VALUES(13,2,'pp',4.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 18, 24, 36, 37, 72]}}');
INSERT INTO trial_params VALUES(14,2,'micro_batch',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8, 16, 32]}}');
INSERT INTO trial_params VALUES(15,2,'zero',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [0, 1, 2, 3]}}');
INSERT INTO trial_params VALUES(16,2,'recompute',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "selective", "full"]}}');
INSERT INTO trial_params VALUES(17,2,'heads',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [16, 32, 64, 112, 128, 256]}}');
INSERT INTO trial_params VALUES(18,2,'vpp',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6]}}');
INSERT INTO trial_params VALUES(19,2,'sequence_parallel',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [false, true]}}');
INSERT INTO trial_params VALUES(20,2,'partition',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["layers", "embedding"]}}');
INSERT INTO trial_params VALUES(21,3,'nodes',14.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, 36, 37, 48]}}');
INSERT INTO trial_params VALUES(22,3,'tp',3.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8]}}');
INSERT INTO trial_params VALUES(23,3,'pp',4.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 18, 24, 36, 37, 72]}}');
INSERT INTO trial_params VALUES(24,3,'micro_batch',2.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8, 16, 32]}}');
INSERT INTO trial_params VALUES(25,3,'zero',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [0, 1, 2, 3]}}');
INSERT INTO trial_params VALUES(26,3,'recompute',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "selective", "full"]}}');
INSERT INTO trial_params VALUES(27,3,'heads',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [16, 32, 64, 112, 128, 256]}}');
INSERT INTO trial_params VALUES(28,3,'vpp',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6]}}');
INSERT INTO trial_params VALUES(29,3,'sequence_parallel',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [false, true]}}');
INSERT INTO trial_params VALUES(30,3,'partition',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["layers", "embedding"]}}');
INSERT INTO trial_params VALUES(31,4,'nodes',14.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, 36, 37, 48]}}');
INSERT INTO trial_params VALUES(32,4,'tp',2.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8]}}');
INSERT INTO trial_params VALUES(33,4,'pp',7.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 18, 24, 36, 37, 72]}}');
INSERT INTO trial_params VALUES(34,4,'micro_batch',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8, 16, 32]}}');
INSERT INTO trial_params VALUES(35,4,'zero',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [0, 1, 2, 3]}}');
INSERT INTO trial_params VALUES(36,4,'recompute',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "selective", "full"]}}');
INSERT INTO trial_params VALUES(37,4,'heads',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [16, 32, 64, 112, 128, 256]}}');
INSERT INTO trial_params VALUES(38,4,'vpp',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6]}}');
INSERT INTO trial_params VALUES(39,4,'sequence_parallel',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [false, true]}}');
INSERT INTO trial_params VALUES(40,4,'partition',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["layers", "embedding"]}}');
INSERT INTO trial_params VALUES(41,5,'nodes',14.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, 36, 37, 48]}}');
INSERT INTO trial_params VALUES(42,5,'tp',3.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8]}}');
INSERT INTO trial_params VALUES(43,5,'pp',4.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 18, 24, 36, 37, 72]}}');
INSERT INTO trial_params VALUES(44,5,'micro_batch',2.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8, 16, 32]}}');
INSERT INTO trial_params VALUES(45,5,'zero',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [0, 1, 2, 3]}}');
INSERT INTO trial_params VALUES(46,5,'recompute',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "selective", "full"]}}');
INSERT INTO trial_params VALUES(47,5,'heads',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [16, 32, 64, 112, 128, 256]}}');
INSERT INTO trial_params VALUES(48,5,'vpp',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6]}}');
INSERT INTO trial_params VALUES(49,5,'sequence_parallel',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [false, true]}}');
INSERT INTO trial_params VALUES(50,5,'partition',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["layers", "embedding"]}}');
INSERT INTO trial_params VALUES(51,6,'nodes',14.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, 36, 37, 48]}}');
INSERT INTO trial_params VALUES(52,6,'tp',3.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8]}}');
INSERT INTO trial_params VALUES(53,6,'pp',7.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6, 8, 9, 12, 18, 24, 36, 37, 72]}}');
INSERT INTO trial_params VALUES(54,6,'micro_batch',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 4, 8, 16, 32]}}');
INSERT INTO trial_params VALUES(55,6,'zero',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [0, 1, 2, 3]}}');
INSERT INTO trial_params VALUES(56,6,'recompute',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["none", "selective", "full"]}}');
INSERT INTO trial_params VALUES(57,6,'heads',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [16, 32, 64, 112, 128, 256]}}');
INSERT INTO trial_params VALUES(58,6,'vpp',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [1, 2, 3, 4, 6]}}');
INSERT INTO trial_params VALUES(59,6,'sequence_parallel',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": [false, true]}}');
INSERT INTO trial_params VALUES(60,6,'partition',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["layers", "embedding"]}}');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO trial_values VALUES(1,1,0,789.81102793560728513,'FINITE');
INSERT INTO trial_values VALUES(2,2,0,813.14700813554043178,'FINITE');
INSERT INTO trial_values VALUES(3,3,0,790.22311715151454334,'FINITE');
INSERT INTO trial_values VALUES(4,4,0,807.02533137281909601,'FINITE');
INSERT INTO trial_values VALUES(5,5,0,789.98513500100000328,'FINITE');
INSERT INTO trial_values VALUES(6,6,0,803.59084243726260866,'FINITE');
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO trial_heartbeats VALUES(1,1,'2026-11-22 00:06:05');
INSERT INTO trial_heartbeats VALUES(2,2,'2026-11-22 00:06:05');
INSERT INTO trial_heartbeats VALUES(3,3,'2026-11-22 00:06:05');
INSERT INTO trial_heartbeats VALUES(4,4,'2026-11-22 00:06:05');
INSERT INTO trial_heartbeats VALUES(5,5,'2026-11-22 00:06:06');
INSERT INTO trial_heartbeats VALUES(6,6,'2026-11-22 00:06:06');
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO alembic_version VALUES('v3.2.0.a');
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
